from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.errors import RetinueError
from retinue.core.run import Grant, Run
from retinue.core.tool import Effect
from retinue.engine.request import RunRequest
from retinue.engine.rights import RevokedTools, RightsTable, build_terms, list_doubts
from retinue.engine.run_config import Additions, Policy
from retinue.settings.run_config import build_surfaces
from retinue.settings.subagents import SubagentsConfig
from retinue.tools.policy import SUBAGENT_READONLY, Rights, ToolRefusal

TOOLS = {name: SimpleNamespace(effect=effect) for name, effect in {"read": Effect.READ, "write": Effect.WRITE}.items()}
SURFACES = build_surfaces(SubagentsConfig(), {})
AGENT = Definition(name="a", dialect="pi", source="user", path="a.md")
REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")


def make(
    *root: str, revoked: RevokedTools | None = None, base_depth: int = 0, asked_here: Sequence[str] = ()
) -> RightsTable:
    policy = Policy(surfaces=SURFACES, base_depth=base_depth)
    return RightsTable(policy, TOOLS, revoked or RevokedTools(), Rights(root), asked_here)  # type: ignore[arg-type]


def run(id: str, parent: str, depth: int, grant: Grant | None = None) -> Run:
    return Run(id=id, parent_id=parent, depth=depth, agent="a", description="d", grant=grant)


def decide(rights: RightsTable, which: Run) -> tuple[str, ...]:
    return rights.decide(which, REQUEST, AGENT, Additions())[0].allowed


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
    revoked = RevokedTools()
    revoked.lower("main", ["write"])
    assert decide(make("read", "write", revoked=revoked), run("b", "main", 1)) == ("read",)


@pytest.mark.attack("E6")
@pytest.mark.parametrize(("base_depth", "answer"), [(0, True), (2, True), (3, False)])
def test_levels_outside_count(base_depth: int, answer: bool) -> None:
    rights = make("read", base_depth=base_depth)
    assert rights.decide(run("b", "main", 1), REQUEST, AGENT, Additions())[1].may_nest is answer


def test_tools_the_main_agent_gets_later_reach_its_runs() -> None:
    rights = make("read", asked_here=["new"])
    grant = Grant(("read",), False)
    before = decide(rights, run("new", "main", 1, grant))
    rights.admit(["read", "write"])
    found = [decide(rights, run(run_id, "main", 1, grant)) for run_id in ("new", "old")]
    assert (before, found) == (("read",), [("read", "write"), ("read",)])
    assert rights.find_grant("main") == Grant(("read", "write"), False)
    rights.admit(["read"])
    assert decide(rights, run("b", "main", 1)) == ("read", "write")


def test_read_only_parent_makes_a_read_only_definition() -> None:
    rights = make("read", "write")
    child = run("b", "a", 2)
    rights.remember("a", Rights(("read",)))
    assert rights.narrow(child, REQUEST, AGENT) is AGENT
    rights.remember("a", Rights(("read",), readonly=True))
    narrowed = rights.narrow(child, REQUEST, AGENT)
    assert (narrowed.readonly, narrowed.name, rights.narrow(child, REQUEST, narrowed) is narrowed) == (True, "a", True)
    assert decide(rights, child) == ("read",)


def test_forgotten_run_bounds_nothing() -> None:
    rights = make("read", "write")
    rights.remember("a", Rights(("read",)))
    assert rights.find_grant("a") == Grant(("read",), False)
    rights.forget("a")
    assert rights.find_grant("a") == Grant(("read", "write"), False)
    with pytest.raises(RetinueError, match="is not known"):
        decide(rights, run("b", "a", 2))


def test_runs_that_are_alike_share_their_rights() -> None:
    rights = make("read", "write")
    grant = rights.find_grant("a")
    first, second = (rights.decide(run(run_id, "main", 1, grant), REQUEST, AGENT, Additions())[0] for run_id in "ab")
    assert (first is second, rights.find_grant("b") is grant) == (True, True)
    other = replace(AGENT, tools=DeclaredTools(names=("read",)))
    assert rights.decide(run("c", "main", 1, grant), REQUEST, other, Additions())[0].allowed == ("read",)
    assert decide(rights, run("d", "main", 1, Grant(("write",), False))) == ("write",)


def test_read_only_commands_need_a_sandbox() -> None:
    reader = replace(AGENT, readonly=True)
    terms = build_terms(Policy(), reader, "fleet", level=1, available={})
    assert (terms.is_confined, terms.confinement) == (False, "no sandbox is available on this machine")
    judged = build_terms(Policy(judge=lambda: (True, "bwrap")), reader, "fleet", level=1, available={})
    assert (judged.is_confined, judged.confinement) == (True, "bwrap")


def test_surface_decides_what_read_only_means() -> None:
    policy = Policy(surfaces=SURFACES, readonly_bash=True, denied=("bash",), always_exposed=("todo",))
    fleet, subagent = (build_terms(policy, AGENT, surface, level=1, available={}) for surface in ("fleet", "subagent"))
    assert (fleet.is_exact, fleet.readonly_set, fleet.may_nest) == (False, None, True)
    assert (subagent.is_exact, subagent.readonly_set, subagent.may_nest) == (True, SUBAGENT_READONLY, False)
    assert (fleet.readonly_bash, fleet.user_denied, fleet.always_exposed) == (True, ("bash",), ("todo",))


def test_only_unknown_tools_are_doubted() -> None:
    refused = [
        ToolRefusal("looo", "unknown", "x"),
        ToolRefusal("Agent", "unknown", "y"),
        ToolRefusal("bash", "denied", "z"),
    ]
    doubts = list_doubts(Rights((), refused=tuple(refused), warnings=("w",)))
    assert doubts == [refused[0].sentence, "w"]
