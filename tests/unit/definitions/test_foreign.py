"""What each other tool's fields become, from the documentation of the tools."""

from typing import Any

import pytest

from retinue.core.definition import FOREIGN, DeclaredTools, Definition
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.definitions.dialects.opencode import parse_config
from retinue.definitions.discover import PARSERS
from retinue.definitions.foreign import list_possible

ALL_DENIED = "{action: '*', resource: '*', effect: deny}"
CODEX = 'name = "x"\ndescription = "d"\ndeveloper_instructions = "Do it."\n'


def read(front: str, dialect: Any, path: str = "/x/file.md") -> Definition:
    text = CODEX + front if dialect == "codex" else f"---\ndescription: d\n{front}\n---\nDo it."
    definition, told = PARSERS[dialect](text, path, "user")
    assert definition is not None, told
    assert definition.prompt == "Do it."
    return definition


def get_status(definition: Definition) -> dict[str, str]:
    return {item.field: item.status for item in definition.fields}


def test_claude_fields_are_kept() -> None:
    found = read(
        "name: rev\ntools: Read, Grep, Glob, Agent(a, b), mcp__gh__get\ndisallowedTools: [Write]\nmodel: inherit\n"
        "permissionMode: plan\nmaxTurns: 5\nskills: [one]\nmemory: project\neffort: high\nisolation: worktree\n"
        "color: red",
        "claude",
    )
    assert set(get_status(found).values()) == {"kept"}
    assert (found.name, found.readonly, found.max_turns, found.skills, found.memory) == (
        "rev",
        True,
        5,
        ("one",),
        "project",
    )
    assert (found.thinking, found.isolation, found.color, found.enabled) == ("high", "worktree", "red", True)
    assert found.tools == DeclaredTools(("read", "grep", "find", "Agent", "mcp__gh__get"), denied=("write",))
    assert found.allowed_subagents == ("a", "b")


@pytest.mark.parametrize(
    ("dialect", "front", "field"),
    [
        ("claude", "permissionMode: moonlight", "permissionMode"),
        ("claude", "tools: Read, Bash(git:*)", "tools"),
        ("claude", "tools: {allowed: [Read]}", "tools"),
        ("claude", "disallowedTools: Bash(rm *)", "disallowedTools"),
        ("claude", "disallowedTools: {a: b}", "disallowedTools"),
        ("claude", "isolation: container", "isolation"),
        ("claude", "maxTurns: many", "maxTurns"),
        ("claude", "hooks: {PreToolUse: []}", "hooks"),
        ("claude", "allowedDomains: [example.com]", "allowedDomains"),
        ("claude", "permissionMode: plan\npermissionMode: default", "permissionMode"),
        ("claude", "tools: Read\ntools: Bash", "tools"),
        ("claude", "tools: Read Bash(git:*)", "tools"),
        ("claude", "disallowedTools: Web*", "disallowedTools"),
        ("claude", "disallowedTools: Bash Write", "disallowedTools"),
        ("claude", "disallowedTools: Bash(git", "disallowedTools"),
        ("claude", "tools: Read, mcp__gh__*\ndisallowedTools: mcp__gh__get(a)", "disallowedTools"),
        ("claude", "mcpServers: [{gh: {command: x, disabledTools: [a]}}]", "mcpServers"),
        ("claude", "enabled: false", "enabled"),
        ("claude", "write: false", "write"),
        ("claude", "access: read", "access"),
        ("codex", 'profile = "strict"', "profile"),
        ("opencode", "permission: {edit: deny}\npermission: {edit: allow}", "permission"),
        ("opencode", "steps: 5\nmaxSteps: 50", "maxSteps"),
        ("cursor", "readonly: true\nreadonly: false", "readonly"),
        ("copilot", "tools: [gh/*]\nmcp-servers: {gh: {tools: [a]}}", "mcp-servers"),
        ("gemini", "tools: [mcp_gh_*]\nmcpServers: {gh: {excludeTools: [a]}}", "mcpServers"),
        ("codex", 'sandbox_mode = "moonlight"', "sandbox_mode"),
        ("codex", 'approval_policy = {granular = {rules = true}}', "approval_policy"),
        ("codex", "[sandbox_workspace_write]\nnetwork_access = false", "sandbox_workspace_write"),
        ("codex", "[features]\nshell_tool = false", "features"),
        ("codex", 'default_permissions = "strict"', "default_permissions"),
        ("opencode", "permission: {edit: perhaps}", "permission"),
        ("opencode", "permission: {bash: {'*': ask, 'git *': allow}}", "permission"),
        ("opencode", "permission: {external_directory: deny}", "permission"),
        ("opencode", "permission: 7", "permission"),
        ("opencode", "tools: {bash: maybe}", "tools"),
        ("opencode", "permissions: [{action: shell, resource: 'git push *', effect: deny}]", "permissions"),
        ("opencode", "steps: -1", "steps"),
        ("cursor", "readonly: perhaps", "readonly"),
        ("copilot", "tools: {a: b}", "tools"),
        ("copilot", "disable-model-invocation: true", "disable-model-invocation"),
        ("copilot", "infer: false", "infer"),
        ("gemini", "kind: remote", "kind"),
        ("gemini", "timeout_mins: soon", "timeout_mins"),
    ],
)  # fmt: skip
def test_unclear_restriction_disables(dialect: str, front: str, field: str) -> None:
    found = read(front, dialect)
    assert not found.enabled
    assert len(found.faults) == 1 and f": {field}: " in found.faults[0]
    assert get_status(found)[field] == "ignored"


@pytest.mark.parametrize(
    ("dialect", "front", "tools"),
    [
        ("claude", "", BUILTIN_TOOLS),
        ("claude", "tools: []", ()),
        ("claude", "tools: Read, Skill, NotebookEdit, Frobnicate", ("read",)),
        ("claude", "disallowedTools: Write, NotebookEdit, bash", ("read", "grep", "find", "ls")),
        ("claude", "disallowedTools: Bsh", ("read", "edit", "write", "grep", "find", "ls")),
        ("claude", "permissionMode: dontAsk", ("read", "bash", "grep", "find", "ls")),
        ("codex", 'sandbox_mode = "read-only"', ("read", "bash", "grep", "find", "ls")),
        ("codex", 'approval_policy = "untrusted"', ("read", "bash", "grep", "find", "ls")),
        ("codex", 'web_search = "live"', (*BUILTIN_TOOLS, "web_search")),
        ("opencode", "permission: {edit: deny, bash: ask}", ("read", "grep", "find", "ls")),
        ("opencode", "permission: {'*': deny, read: allow}", ("read",)),
        ("opencode", "permission: {read: allow, '*': deny}", ()),
        ("opencode", "permission: {bash: deny, '*': allow}", ("read", "edit", "write", "grep", "find", "ls")),
        ("opencode", "permission: deny", ()),
        ("opencode", "permission: {bash: {'git *': deny, '*': deny}}", ("read", "edit", "write", "grep", "find", "ls")),
        ("opencode", f"permissions: [{ALL_DENIED}, {{action: grep, resource: '*', effect: allow}}]", ("grep",)),
        ("opencode", "tools: {'*': false, read: true, write: true}", ("read", "write")),
        ("opencode", "tools: {write: false, edit: false}", ("read", "bash", "grep", "find", "ls")),
        ("opencode", "permission: {webfetch: allow}", (*BUILTIN_TOOLS, "fetch_content")),
        ("opencode", "tools: {write: false}", ("read", "bash", "grep", "find", "ls")),
        ("opencode", "tools: {edit: true, patch: false}", ("read", "bash", "grep", "find", "ls")),
        ("opencode", "permission: {edt: deny}", ("read", "bash", "grep", "find", "ls")),
        ("cursor", "readonly: true", ("read", "bash", "grep", "find", "ls")),
        ("copilot", "tools: [Read, search, shell, gh/issues]", ("read", "grep", "find", "ls", "bash", "gh:issues")),
        ("copilot", "tools: []", ()),
        ("gemini", "tools: [read_file, run_shell_command, save_memory]", ("read", "bash")),
    ],
)  # fmt: skip
def test_tools_get_our_names(dialect: str, front: str, tools: tuple[str, ...]) -> None:
    found = read(front, dialect)
    assert found.enabled
    assert list_possible(found) == set(tools)


@pytest.mark.parametrize(
    ("dialect", "front", "expected"),
    [
        ("claude", "model: sonnet", ("sonnet", True)),
        ("claude", "model: claude-opus-4-6", ("claude-opus-4-6", True)),
        ("codex", 'model = "gpt-5.4"', ("gpt-5.4", True)),
        ("opencode", "model: anthropic/claude-sonnet-4-5", ("anthropic/claude-sonnet-4-5", False)),
        ("cursor", "model: fast", (None, False)),
        ("copilot", "model: [gpt-5, o3]", ("gpt-5", True)),
        ("gemini", "model: inherit", (None, False)),
    ],
)
def test_models_are_wishes(dialect: str, front: str, expected: tuple[str | None, bool]) -> None:
    found = read(front, dialect)
    assert (found.model, found.is_model_wish) == expected


def test_limits_and_names_are_read() -> None:
    gemini = read("name: gem\nmax_turns: 3\ntimeout_mins: 5\ntemperature: 0.2", "gemini")
    assert (gemini.max_turns, gemini.max_seconds, get_status(gemini)["temperature"]) == (3, 300, "ignored")
    copilot = read("name: Cop Pilot\nmetadata: {a: b}", "copilot", "/x/cop.agent.md")
    assert (copilot.name, copilot.display_name) == ("cop", "Cop Pilot")
    codex = read('model_reasoning_effort = "none"\nnickname_candidates = ["A"]', "codex", "/x/x.toml")
    assert (codex.thinking, get_status(codex)["nickname_candidates"]) == ("off", "ignored")
    opencode = read(
        "mode: subagent\nsteps: 7\nreasoningEffort: low\ncolor: '#fff'\ndisable: true", "opencode", "/x/oc.md"
    )
    assert (opencode.name, opencode.max_turns, opencode.thinking, opencode.enabled) == ("oc", 7, "low", False)
    assert opencode.faults == ()


def test_servers_need_a_listed_name() -> None:
    some = read("tools: Read, mcp__gh__*, mcp__docs__find", "claude")
    assert (some.tools.names, some.mcp_servers) == (("read", "mcp__docs__find"), ("gh", "docs"))
    inline = read("mcpServers: [gh, {own: {command: x}}]", "claude")
    assert inline.mcp_servers == ("gh", "own")
    listed = read("tools: Read\nmcpServers: [gh]", "claude")
    assert listed.mcp_servers == ()
    for front in (
        "tools: Read, mcp__gh__*\ndisallowedTools: mcp__gh",
        "disallowedTools: mcp__*\nmcpServers: [gh]",
        "disallowedTools: mcp__gh\nmcpServers: {gh: {timeout: 5}}",
    ):
        assert (read(front, "claude").mcp_servers, read(front, "claude").enabled) == ((), True)
    gemini = read("tools: [mcp_gh_*, mcp_*]", "gemini")
    assert (gemini.tools.selectors, gemini.mcp_servers, get_status(gemini)["tools"]) == (("ext:mcp",), ("gh",), "kept")


@pytest.mark.parametrize(
    "front",
    ["skills: false", "skills: none", "disallowedTools: Skill", "disallowedTools: Skill(one)", "skills: {one: true}"],
)
def test_denied_skills_are_off(front: str) -> None:
    assert read(front, "claude").skills is False


def test_opencode_file_lists_agents() -> None:
    text = b"""{ // with comments
      "agent": {"a": {"description": "A", "prompt": "Do.", "permission": {"edit": "deny"}}, "plan": {"model": "x/y"},
      "b": {"prompt": "{file:./b.txt}"}},}"""
    first, second = parse_config(text, "/x/opencode.json", "project")
    assert first[0] is not None and (first[0].name, first[0].prompt) == ("a", "Do.")
    assert "edit" not in list_possible(first[0])
    assert second[0] is None and "another file" in second[1][0].message
    assert [told[0].code for _, told in parse_config(b"{", "/x/opencode.json", "user")] == ["json"]


@pytest.mark.parametrize("dialect", FOREIGN)
def test_harmless_unknown_field_is_ignored(dialect: str) -> None:
    front = 'vibe = "calm"' if dialect == "codex" else "vibe: calm"
    found = read(front, dialect)
    assert (found.enabled, get_status(found)["vibe"]) == (True, "ignored")


def test_broken_toml_is_told() -> None:
    assert [item.code for item in PARSERS["codex"]("name = ", "/x/a.toml", "user")[1]] == ["toml"]
    assert [item.code for item in PARSERS["codex"]('name = "a"', "/x/a.toml", "user")[1]] == ["no-frontmatter"]
