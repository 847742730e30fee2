from types import SimpleNamespace

import pytest

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.core.run import Grant, Run
from retinue.core.tool import Effect
from retinue.engine.extras import Extras
from retinue.engine.kit import Policy
from retinue.engine.request import RunRequest
from retinue.engine.restraint import Restraint
from retinue.engine.rights import CrewRights
from retinue.tools.policy import Rights

TOOLS = {name: SimpleNamespace(effect=effect) for name, effect in {"read": Effect.READ, "write": Effect.WRITE}.items()}
AGENT = Definition(name="a", dialect="pi", source="user", path="a.md")
REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")


def make(*root: str, restraint: Restraint | None = None, base_depth: int = 0) -> CrewRights:
    policy = Policy(max_depth={"fleet": 4}, base_depth=base_depth)
    kit = SimpleNamespace(policy=policy, restraint=restraint or Restraint(), tools=TOOLS)
    return CrewRights(kit, Rights(root), ())  # type: ignore[arg-type]


def run(id: str, parent: str, depth: int, grant: Grant | None = None) -> Run:
    return Run(id=id, parent_id=parent, depth=depth, agent="a", description="d", grant=grant)


def decide(rights: CrewRights, which: Run) -> tuple[str, ...]:
    return rights.decide(which, REQUEST, AGENT, Extras())[0].allowed


@pytest.mark.attack("E1", "E7")
def test_run_of_unknown_parent_does_not_start() -> None:
    rights = make("read", "write")
    with pytest.raises(RetinueError, match="what its parent 'gone' may use is not known"):
        decide(rights, run("b", "gone", 2))
    assert decide(rights, run("b", "gone", 2, Grant(("read",), False))) == ("read",)


@pytest.mark.attack("E1")
def test_resumed_run_gets_no_more_than_before() -> None:
    rights = make("read", "write")
    assert decide(rights, run("b", "main", 1)) == ("read", "write")
    rights.remember("b", Rights(("read",)))
    assert decide(rights, run("b", "main", 1)) == ("read",)
    assert decide(rights, run("c", "b", 2)) == ("read",)


@pytest.mark.attack("E11", "E13")
def test_loss_of_parent_bounds_new_runs() -> None:
    restraint = Restraint()
    restraint.lower("main", ["write"])
    assert decide(make("read", "write", restraint=restraint), run("b", "main", 1)) == ("read",)


@pytest.mark.attack("E6")
@pytest.mark.parametrize(("base_depth", "answer"), [(0, True), (2, True), (3, False)])
def test_levels_outside_count(base_depth: int, answer: bool) -> None:
    rights = make("read", base_depth=base_depth)
    assert rights.decide(run("b", "main", 1), REQUEST, AGENT, Extras())[1].may_nest is answer
