from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.definitions.convert import TARGETS, Target, convert_agent
from retinue.definitions.discover import PARSERS
from retinue.definitions.foreign import list_possible


def read(front: str, dialect: Any = "pi", body: str = "Do it.") -> Definition:
    definition, told = PARSERS[dialect](f"---\nname: x\ndescription: d\n{front}\n---\n{body}", "/x/x.md", "user")
    assert definition is not None, told
    return definition


def go_round(definition: Definition, target: Target) -> Definition:
    made = convert_agent(definition, target)
    back, told = PARSERS[target](made.text, f"/x/{definition.name}{made.suffix}", "user")
    assert back is not None and back.enabled == definition.enabled, (told, made.text)
    for report in made.reports:
        if report.status == "kept" and report.field not in ("tools", "disallowed_tools", "extensions", "isolated"):
            assert getattr(back, report.field) == getattr(definition, report.field), (report, made.text)
    assert back.prompt == definition.prompt
    assert list_possible(back) <= list_possible(definition)
    return back


FRONTS = [
    "",
    "model: opus\nthinking: high",
    "readonly: true",
    "tools: read, grep, find, ls\nmax_turns: 5",
    "tools: read, write",
    "tools: none",
    "disallowed_tools: bash, write",
    "memory: project\ncolor: red\nskills: [one, two]\nisolation: worktree",
    "skills: false",
    "tools: read, Agent\nallowed_subagents: [a, b]",
    "tools: read, mcp__gh__get",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("front", FRONTS)
def test_kept_fields_come_back(front: str, target: Target) -> None:
    definition = read(front)
    try:
        go_round(definition, target)
    except RetinueError as error:
        assert any(
            f": {field}: " in str(error) for field in ("tools", "disallowed_tools", "max_turns", "allowed_subagents")
        )
        assert target in ("codex", "opencode")


@pytest.mark.parametrize("body", ['Say """hi""" \\n twice.', "One.\n\n```py\nx = 'a\\\\b'\n```\n\ttab \"q\"", "ü\x01"])
@pytest.mark.parametrize("target", TARGETS)
def test_instructions_come_back(body: str, target: Target) -> None:
    go_round(read("", body=body), target)


@pytest.mark.parametrize(
    ("front", "target", "field"),
    [
        ("max_cost: 1", "claude", "max_cost"),
        ("max_seconds: 5", "opencode", "max_seconds"),
        ("max_turns: 3", "codex", "max_turns"),
        ("tools: read", "codex", "tools"),
        ("disallowed_tools: bash", "codex", "disallowed_tools"),
        ("enabled: false", "claude", "enabled"),
        ("extensions: false", "claude", "extensions"),
        ("tools: ext:mcp", "claude", "tools"),
        ("tools: read, Agent\nallowed_subagents: [a]", "opencode", "allowed_subagents"),
    ],
)
def test_lost_restriction_is_refused(front: str, target: Target, field: str) -> None:
    with pytest.raises(RetinueError, match=f"cannot be converted to {target}: {field}: "):
        convert_agent(read(front), target)


def test_unexpressed_restriction_is_refused() -> None:
    with pytest.raises(RetinueError, match="permissionMode"):
        convert_agent(read("permissionMode: moonlight", "claude"), "pi")


def test_servers_stay_closed_in_pi() -> None:
    assert go_round(read("tools: Read, Grep", "claude"), "pi").extensions is False
    with pytest.raises(RetinueError, match="mcp_servers"):
        convert_agent(read("tools: Read, mcp__gh__*", "claude"), "pi")


tools = st.lists(st.sampled_from(["read", "bash", "edit", "write", "grep", "find", "ls", "web_search"]), unique=True)


@given(names=st.none() | tools, denied=tools, readonly=st.booleans(), target=st.sampled_from(TARGETS))
def test_conversion_never_gives_more(
    names: list[str] | None, denied: list[str], readonly: bool, target: Target
) -> None:
    listed = "" if names is None else f"tools: {', '.join(names) or 'none'}\n"
    front = f"{listed}disallowed_tools: {', '.join(denied) or 'none'}\nreadonly: {str(readonly).lower()}"
    try:
        go_round(read(front), target)
    except RetinueError:
        assert target == "codex"
