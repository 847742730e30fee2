import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.model import ModelInfo
from retinue.core.tool import Effect
from retinue.engine.budget import Lease
from retinue.engine.external.command_line import ProcessPurpose
from retinue.engine.external.program import ProcessContext
from retinue.engine.limits import Limits
from retinue.engine.request import RunRequest
from retinue.engine.run_config import RemoteRequest, Runner
from retinue.tools.policy import Rights
from tests.run_setup import build_setup

AGENT = Definition(name="a", dialect="codingcode", source="user", path="a.md")
REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")
MODEL: Any = SimpleNamespace(info=ModelInfo(provider="p", id="m", api="own"))
EFFECTS = {"read": Effect.READ, "bash": Effect.EXECUTE, "write": Effect.WRITE}
SETUP = build_setup(
    "r",
    Path("/"),
    MODEL,
    thinking="low",
    tools={name: SimpleNamespace(effect=effect) for name, effect in EFFECTS.items()},  # type: ignore[misc]
    environment={"DEPTH": "2"},
)


def make(
    runner: Runner = "process",
    *,
    surface: str = "fleet",
    isolated: bool = False,
    rights: Rights | None = None,
    session: str = "",
    words: tuple[str, str] = ("", ""),
    **fields: Any,
) -> ProcessPurpose:
    request = replace(REQUEST, surface=surface, isolated=isolated)
    remote_request = RemoteRequest(
        runner, replace(AGENT, **fields), request, rights or Rights(()), session, Lease(), is_bare=surface == "subagent"
    )
    return ProcessPurpose(remote_request, *words)


def flags(post: ProcessPurpose, *tools: str, trusted: bool | None = None) -> list[str]:
    return post.render_flags(SETUP, list(tools), "/p.md", trusted=trusted)


@pytest.mark.parametrize(
    ("surface", "dialect", "words"),
    [("subagent", "pi", "Task: x"), ("subagent", "sticky", "x"), ("fleet", "pi", "x")],
)
def test_task_in_the_words_of_the_surface(surface: str, dialect: str, words: str) -> None:
    assert make(surface=surface, dialect=dialect).render_task("x") == words


@pytest.mark.parametrize(
    ("runner", "readonly", "given"),
    [
        ("pi", False, ["read", "bash", "write"]),
        ("process", False, ["read", "bash", "write"]),
        ("process", True, ["read", "bash"]),
        ("pi", True, ["read"]),
    ],
)
def test_read_only_run_gets_what_can_be_kept_so(runner: Runner, readonly: bool, given: list[str]) -> None:
    post = make(runner, rights=Rights((), readonly=readonly))
    refused = [f"tool {name} cannot be made read-only there" for name in EFFECTS if name not in given]
    assert post.list_tools(SETUP, ProcessContext({}, Path("/"))) == (given, refused)


def test_tools_of_this_process_stay_here() -> None:
    post = make(rights=Rights((), targets={"Read": "read"}))
    setup = SETUP.change(tools={"Read": SETUP.tools["read"], **SETUP.tools})
    given, refused = post.list_tools(setup, ProcessContext({}, Path("/"), private_tools=frozenset({"bash"})))
    assert (given, refused) == (["read", "write"], ["tool bash exists only in this process"])
    assert post.list_names(setup, given) == {"Read": "read", "read": "read", "write": "write"}
    assert post.list_names(SETUP, given) == {}


def test_flags_say_session_model_level_and_tools() -> None:
    rest = ["--system-prompt", "/p.md", "--no-context-files", "--no-skills"]
    begin = ["--mode", "json", "-p"]
    told = [*begin, "--no-session", "--model", "p/m", "--thinking", "low", "--no-tools", *rest]
    assert flags(make()) == told
    kept = [*begin, "--session", "/s", "--model", "q/n", "--thinking", "high", "--tools", "read,bash", *rest]
    assert flags(make(surface="subagent", session="/s", words=("q/n", "high")), "read", "bash") == kept
    assert flags(make(surface="subagent")) == [*begin, "--no-session", "--no-tools", *rest]


@pytest.mark.parametrize(("runner", "model"), [("process", False), ("pi", True)])
def test_pi_is_always_told_its_model(runner: Runner, model: bool) -> None:
    assert ("--model" in flags(make(runner, surface="subagent"))) is model


@pytest.mark.parametrize(
    ("runner", "trusted", "said"),
    [
        ("process", True, ["--approve"]),
        ("process", False, ["--no-approve"]),
        ("process", None, []),
        ("pi", True, []),
        ("pi", False, ["--no-approve"]),
    ],
)
def test_trust_is_passed_on(runner: Runner, trusted: bool | None, said: list[str]) -> None:
    assert [flag for flag in flags(make(runner), trusted=trusted) if flag.endswith("approve")] == said


@pytest.mark.parametrize(
    ("post", "is_said"),
    [
        (make("pi", extensions=True), False),
        (make("pi", extensions=False), True),
        (make("pi", extensions=True, isolated=True), True),
        (make("process", extensions=False), False),
    ],
)
def test_isolated_pi_has_no_extensions(post: ProcessPurpose, is_said: bool) -> None:
    assert ("--no-extensions" in flags(post)) is is_said


def test_child_is_told_its_place_by_marks() -> None:
    marks = make(allowed_subagents=("x", "y")).render_marks(SETUP)
    extensions = json.loads(marks.pop("RETINUE_EXTENSIONS"))
    told = {"PI_PROVIDER": "p", "PI_MODEL": "m", "PI_REASONING_LEVEL": "low", "RETINUE_AGENTS": "x,y"}
    assert marks == {"DEPTH": "2", "RETINUE_AGENT_ID": SETUP.run_id, **told}
    assert extensions == {"selection": AGENT.extensions, "excluded": [], "isolated": False}


def test_child_is_told_its_limits_by_marks() -> None:
    setup = SETUP.change(limits=Limits(max_turns=7, grace_turns=3))
    marks = make(rights=Rights((), readonly=True), isolated=True).render_marks(setup)
    limits = {name: marks[f"RETINUE_{name}"] for name in ("READONLY", "MAX_TURNS", "GRACE_TURNS", "AGENTS")}
    assert limits == {"READONLY": "1", "MAX_TURNS": "7", "GRACE_TURNS": "3", "AGENTS": "*"}
    assert json.loads(marks["RETINUE_EXTENSIONS"])["isolated"] is True
