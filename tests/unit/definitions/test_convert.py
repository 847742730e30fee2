from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.definitions.convert import TARGETS, Target, convert_agent
from retinue.definitions.discover import PARSERS
from retinue.definitions.foreign import find_server, list_possible


def read(front: str, dialect: Any = "pi", body: str = "Do it.") -> Definition:
    definition, told = PARSERS[dialect](f"---\nname: x\ndescription: d\n{front}\n---\n{body}", "/x/x.md", "user")
    assert definition is not None, told
    return definition


APART = ("tools", "disallowed_tools", "extensions", "exclude_extensions", "isolated")


def go_round(definition: Definition, target: Target) -> Definition:
    made = convert_agent(definition, target)
    told = [report.field for report in made.reports]
    assert sorted(told) == sorted(set(told)) and set(told) >= list_given(definition), made.reports
    back, told = PARSERS[target](made.text, f"/x/{definition.name}{made.suffix}", "user")
    assert back is not None and back.enabled == definition.enabled, (told, made.text)
    for report in made.reports:
        if report.status == "kept" and report.field == "tools":
            assert list_tools(back) == list_tools(definition), made.text
        if report.status == "kept" and report.field not in APART:
            assert getattr(back, report.field) == getattr(definition, report.field), (report, made.text)
    assert back.prompt == definition.prompt
    assert list_tools(back) <= list_tools(definition)
    assert set(back.mcp_servers) <= set(definition.mcp_servers)
    return back


def list_tools(definition: Definition) -> set[str]:
    """The tools that the agent could get, those of servers in one spelling."""
    return {
        name if (found := find_server(name.replace(":", "/", 1))) is None else ":".join(found)
        for name in list_possible(definition)
    }


def list_given(definition: Definition) -> set[str]:
    """The fields that an agent has, each of which must be in the report."""
    default = Definition(name="", dialect="pi", source="user", path="")
    apart = {"dialect", "source", "path", "prompt", "is_model_wish", "schema_file", "lines", "fields", "tools"}
    names = {field.name for field in structs.fields(Definition)} - apart
    return {name for name in names if getattr(definition, name) != getattr(default, name)}


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
    "tools: read, grep, find, ls, bash, edit, write",
    "extensions: false",
    "isolated: true",
    "max_seconds: 90\ndisplay_name: Hubert",
    "context: summary\nfallback_models: [a/b]\nsession_dir: x\npersist_session: true\nrunner: process",
    "output_schema: {type: object, properties: {n: {type: integer, pattern: '^\\d$'}}}",
    "fallback_models: none\nallowed_subagents: none",
    "tools: '*'\nmax_turns: 0",
]
FOREIGN_FRONTS = [
    ("claude", "tools: Read, Grep, Glob, Bash, mcp__gh__*\nmodel: sonnet\nmaxTurns: 3"),
    ("claude", "tools: Read, Grep, Glob, LS, Bash, Edit, Write\nskills: [one]"),
    ("claude", "disallowedTools: Write, mcp__gh__x\npermissionMode: plan"),
    ("opencode", "permission: {'*': deny, read: allow, grep: allow, webfetch: allow}\nsteps: 4"),
    ("copilot", "tools: [read, search, gh/get, docs/*]"),
    ("gemini", "tools: [read_file, 'mcp_gh_*', google_web_search]\ntimeout_mins: 2"),
    ("cursor", "readonly: true\nmodel: fast"),
]
REFUSED = ("tools", "disallowed_tools", "max_turns", "max_seconds", "allowed_subagents", "extensions", "isolated")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("front", FRONTS)
def test_kept_fields_come_back(front: str, target: Target) -> None:
    definition = read(front)
    try:
        go_round(definition, target)
    except RetinueError as error:
        assert any(f" cannot be converted to {target}: {field}: " in str(error) for field in REFUSED), error
        assert target != "pi"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dialect", "front"), FOREIGN_FRONTS)
def test_kept_fields_of_other_tools_come_back(dialect: str, front: str, target: Target) -> None:
    definition = read(front, dialect)
    try:
        go_round(definition, target)
    except RetinueError as error:
        assert any(f" cannot be converted to {target}: {field}: " in str(error) for field in REFUSED), error
        assert target in ("codex", "cursor", "opencode", "copilot", "claude")


def test_conversion_is_written_as_the_target_does() -> None:
    agent = read("tools: read, grep, find, ls\ndisplay_name: Ann\nmax_seconds: 120", "pi")
    gemini = convert_agent(agent, "gemini").text
    assert "tools: [grep_search, glob, list_directory, read_file]" in gemini and "timeout_mins: 2.0" in gemini
    reader = read("tools: read, grep, find, ls", "pi")
    assert "tools: [read, search]" in convert_agent(reader, "copilot").text
    assert convert_agent(reader, "copilot").suffix == ".agent.md"
    closed = convert_agent(reader, "opencode").text
    assert 'permission:\n  "*": deny\n' in closed and "  read: allow\n" in closed and "bash" not in closed
    assert "readonly: true" in convert_agent(read("readonly: true"), "cursor").text
    searcher = read("tools: read, grep, find, ls, bash, edit, write, web_search")
    assert "web_search" not in convert_agent(searcher, "codex").text
    assert 'web_search = "disabled"' in convert_agent(read("disallowed_tools: web_search"), "codex").text


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
        ("extensions: false", "codex", "extensions"),
        ("isolated: true", "cursor", "isolated"),
        ("exclude_extensions: x", "opencode", "exclude_extensions"),
        ("tools: read", "cursor", "tools"),
        ("disallowed_tools: mcp__gh__x", "codex", "disallowed_tools"),
        ("tools: mcp__gh__x\ndisallowed_tools: mcp__gh__y", "copilot", "disallowed_tools"),
        ("disallowed_tools: mcp__gh__x", "opencode", "disallowed_tools"),
        ("max_turns: 3", "copilot", "max_turns"),
        ("enabled: false", "gemini", "enabled"),
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
    whole = convert_agent(read("tools: Read, mcp__gh__*", "claude"), "pi")
    assert ("mcp_servers", "ignored") in [(report.field, report.status) for report in whole.reports]
    listed = read("tools: Read, Grep, Glob, LS, Bash, Edit, Write", "claude")
    with pytest.raises(RetinueError, match="codex: tools: Codex gives every agent the tools of its servers"):
        convert_agent(listed, "codex")


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
        assert target in ("codex", "cursor")
