import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.definition import Definition
from retinue.core.tool import Effect
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.definitions.denials import apply_denials, parse_claude, parse_opencode, parse_rules
from retinue.definitions.dialects import claude, codex, copilot, gemini, opencode
from retinue.definitions.discover import PARSERS, AgentFolders, list_rule_files
from retinue.definitions.foreign import list_possible
from retinue.tools.policy import BUILTIN_OFFERS, OFFERS, Terms, decide_tools
from retinue.tools.selectors import Offer


def read(front: str, dialect: Any = "claude") -> Definition:
    definition, told = PARSERS[dialect](f"---\ndescription: d\n{front}\n---\nDo it.", "/x/file.md", "user")
    assert definition is not None, told
    return definition


def deny(*rules: str, front: str = "") -> Definition:
    text = json.dumps({"permissions": {"deny": rules}}).encode()
    return apply_denials(read(front), parse_claude(text, "/s.json"))


@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ("Write", {"write"}),
        ("Edit", {"edit", "write"}),
        ("Read", {"read", "grep", "find", "ls"}),
        ("Bash", {"bash"}),
        ("Bash(*)", {"bash"}),
        ("*", set(BUILTIN_TOOLS)),
        ("mcp__gh__x", set()),
        ("WebFetch", set()),
    ],
)
def test_rule_takes_tools_away(rule: str, lost: set[str]) -> None:
    found = deny(rule)
    assert found.enabled
    assert set(BUILTIN_TOOLS) - list_possible(found) == lost


def test_rule_about_some_uses_disables() -> None:
    found = deny("Bash(rm:*)")
    assert not found.enabled
    assert "/s.json: permissions.deny: 'Bash(rm:*)'" in found.faults[0]
    assert deny("Bash(rm:*)", front="tools: Read, Grep").enabled
    assert not deny("Read(./.env)", front="tools: Grep").enabled
    assert deny("Edit(src/**)", front="permissionMode: plan\ntools: Read").enabled
    assert not deny("Agent(file)").enabled
    assert deny("Agent(other)").enabled
    assert deny("Skill(x)").skills is False


@pytest.mark.parametrize(
    "text", ['{"permissions": []}', '{"permissions": {"deny": "Bash"}}', "{", '{"permissions": {"ask": [1]}}']
)
def test_unreadable_rules_disable(text: str) -> None:
    found = apply_denials(read(""), parse_claude(text.encode(), "/s.json"))
    assert not found.enabled and found.faults[0].startswith("/s.json: ")


def test_default_mode_counts() -> None:
    rules = parse_claude(b'{"permissions": {"defaultMode": "plan", "ask": ["Bash"]}}', "/s.json")
    found = apply_denials(read(""), rules)
    assert (found.readonly, "bash" in list_possible(found)) == (True, False)


def test_opencode_permissions_count() -> None:
    rules = parse_opencode(b'{"permission": {"edit": "deny", "bash": "ask"}, "tools": {"grep": false}}', "/o.json")
    found = apply_denials(read("permission: {edit: allow}", "opencode"), rules)
    assert list_possible(found) == {"read", "find", "ls"}
    odd = parse_opencode(b'{"permission": {"edit": "perhaps"}}', "/o.json")
    assert "/o.json: permission.edit" in apply_denials(found, odd).faults[0]


@pytest.mark.parametrize(
    ("entry", "tools"),
    [
        ({"permission": {"edit": "deny"}}, {"read", "bash", "grep", "find", "ls"}),
        ({"tools": {"bash": False}}, {"read", "edit", "write", "grep", "find", "ls"}),
        ({"permission": {"bash": {"git *": "deny"}}}, set()),
        ({"permission": {"edit": "perhaps"}}, set()),
        ({"disable": True}, set()),
        (False, set()),
        ({"prompt": "{file:./x.md}", "permission": {"edit": "deny"}}, {"read", "bash", "grep", "find", "ls"}),
    ],
)
def test_opencode_entry_restricts_the_file_of_its_agent(entry: Any, tools: set[str]) -> None:
    rules = parse_opencode(json.dumps({"agent": {"file": entry}}).encode(), "/o.json")
    found = apply_denials(read("", "opencode"), rules)
    assert get_given(found) == tools
    assert all("/o.json" in fault for fault in found.faults)
    assert get_given(apply_denials(read("name: other", "opencode"), rules)) == set(BUILTIN_TOOLS)


def test_opencode_entry_limits_turns() -> None:
    rules = parse_opencode(b'{"agent": {"file": {"steps": 3}}}', "/o.json")
    assert apply_denials(read("steps: 9", "opencode"), rules).max_turns == 3
    assert apply_denials(read("steps: 2", "opencode"), rules).max_turns == 2
    assert apply_denials(read("", "opencode"), rules).max_turns == 3


@pytest.mark.parametrize(
    ("dialect", "text", "tools"),
    [
        ("gemini", '{"tools": {"exclude": ["write_file", "replace"]}}', {"read", "bash", "grep", "find", "ls"}),
        ("gemini", '{"excludeTools": ["run_shell_command(rm)"]}', set()),
        ("gemini", '{"tools": {"core": ["read_file", "glob"]}}', {"read", "find"}),
        ("gemini", '{"coreTools": ["run_shell_command(git)"]}', set()),
        ("gemini", '{"tools": {"exclude": "x"}}', set()),
        ("gemini", '{"tools": {"sandbox": true}, "ui": {}}', set(BUILTIN_TOOLS)),
        ("cursor", '{"permissions": {"deny": ["Shell"], "allow": ["Shell(ls)"]}}', set(BUILTIN_TOOLS) - {"bash"}),
        ("cursor", '{"permissions": {"deny": ["Shell(rm)"]}}', set()),
        ("cursor", '{"permissions": {"deny": ["Mcp(gh:*)"]}}', set(BUILTIN_TOOLS)),
        ("codex", 'sandbox_mode = "read-only"', {"read", "grep", "find", "ls", "bash"}),
        ("codex", 'approval_policy = "untrusted"', {"read", "grep", "find", "ls", "bash"}),
        ("codex", 'sandbox_mode = "moonlight"', set()),
        ("codex", 'model = "m"\n[features]\nx = true', set(BUILTIN_TOOLS)),
        ("codex", "model = ", set()),
    ],
)
def test_rules_of_other_tools_count(dialect: Any, text: str, tools: set[str]) -> None:
    given = 'name = "x"\ndescription = "d"\ndeveloper_instructions = "Do."'
    agent = PARSERS[dialect](given, "/x/x.toml", "user")[0] if dialect == "codex" else read("", dialect)
    assert agent is not None
    assert get_given(apply_denials(agent, parse_rules(text.encode(), "/s", dialect))) == tools


def test_server_of_cursor_is_denied() -> None:
    rules = parse_rules(b'{"permissions": {"deny": ["Mcp(gh:*)"]}}', "/s", "cursor")
    found = apply_denials(read("tools: Read, mcp__gh__get, mcp__gh__*", "cursor"), rules)
    assert (found.tools.names, found.mcp_servers) == (("read",), ())


def test_managed_settings_are_read(tmp_path: Path) -> None:
    files = list_rule_files(AgentFolders(tmp_path / "work", tmp_path / "agent", tmp_path))
    assert "/etc/claude-code/managed-settings.json" in [root.path for root in files if root.dialect == "claude"]


SERVED = {
    f"mcp__{server}__{tool}": Offer(Effect.READ, "mcp", server, tool)
    for server in ("gh", "docs")
    for tool in ("x", "y")
}


# The property: no dialect gives an agent a tool that its file, or a rule beside it, denies.
def get_given(definition: Definition) -> set[str]:
    """What a run would get if the machine had every tool."""
    if not definition.enabled:
        return set()
    available = {**BUILTIN_OFFERS, **OFFERS, **SERVED}
    return set(decide_tools(definition, Terms(available=available, is_confined=True)).allowed)


CLAUDE = sorted(name for name, tools in claude.TOOLS.items() if tools)
REMOTE = ("mcp__gh__x", "mcp__gh", "mcp__gh__*", "mcp__docs__y", "mcp__docs__*", "mcp__*")
words = st.lists(st.sampled_from([*CLAUDE, *REMOTE, "Bash(git:*)", "Unknown"]), unique=True, max_size=6)


def find_served(words: list[str]) -> set[str]:
    """The tools of servers that these words of Claude Code mean."""
    return {name for name in SERVED for word in words if fnmatchcase(name, word) or name.startswith(f"{word}__")}


@given(tools=st.none() | words, servers=st.sampled_from(["", "gh", "gh, docs"]), denied=words, rules=words)
def test_claude_never_gives_what_is_denied(
    tools: list[str] | None, servers: str, denied: list[str], rules: list[str]
) -> None:
    front = ("" if tools is None else f"tools: {json.dumps(tools)}\n") + f"mcpServers: [{servers}]\n"
    text = json.dumps({"permissions": {"deny": rules}}).encode()
    found = apply_denials(read(f"{front}disallowedTools: {json.dumps(denied)}"), parse_claude(text, "/s.json"))
    lost = {tool for word in (*denied, *rules) for tool in claude.TOOLS.get(word, ())}
    lost |= {"bash"} if "Bash(git:*)" in (*denied, *rules) else set()
    lost |= find_served([*denied, *rules])
    if tools is None:
        asked = {*BUILTIN_TOOLS, *(name for name in SERVED if str(SERVED[name].server) in servers)}
    else:
        asked = {tool for word in tools for tool in claude.TOOLS.get(word, ())} | find_served(tools)
    assert not get_given(found) & lost
    assert get_given(found) <= asked


effects = st.sampled_from(["allow", "ask", "deny"])
values = effects | st.dictionaries(st.sampled_from(["*", "git *"]), effects, min_size=1)
keys = st.sampled_from(["*", *opencode.PERMISSIONS])


@given(own=st.dictionaries(keys, values), beside=st.dictionaries(keys, values))
def test_opencode_never_gives_what_is_denied(own: dict[str, Any], beside: dict[str, Any]) -> None:
    rules = parse_opencode(json.dumps({"permission": beside}).encode(), "/o.json")
    found = apply_denials(read(f"permission: {json.dumps(own)}", "opencode"), rules)
    for permissions in (own, beside):
        for key, value in permissions.items():
            is_denied = value in ("ask", "deny") or (isinstance(value, dict) and {"ask", "deny"} & set(value.values()))
            if is_denied and key != "*":
                assert not get_given(found) & set(opencode.PERMISSIONS[key])
        if list(permissions.values())[-1:] == ["deny"] and list(permissions)[-1] == "*":
            assert not get_given(found) & set(BUILTIN_TOOLS)


@given(data=st.data())
def test_lists_never_give_more(data: st.DataObject) -> None:
    dialect, table, remote = data.draw(
        st.sampled_from(
            [
                ("copilot", copilot.TOOLS, {"gh/*": {"mcp__gh__x", "mcp__gh__y"}, "docs/x": {"mcp__docs__x"}}),
                ("gemini", gemini.TOOLS, {"mcp_gh_*": {"mcp__gh__x", "mcp__gh__y"}, "mcp_*": set(SERVED)}),
            ]
        )
    )
    tools = data.draw(st.lists(st.sampled_from([*sorted(table), *remote]), unique=True, max_size=5))
    found = read(f"tools: {json.dumps(tools)}", dialect)
    assert get_given(found) <= {tool for word in tools for tool in [*table.get(word, ()), *remote.get(word, ())]}


@given(
    sandbox=st.sampled_from(["", *codex.SANDBOX]),
    policy=st.sampled_from(["", *codex.POLICIES]),
    search=st.sampled_from(["", "disabled", "cached", "live"]),
    beside=st.sampled_from(
        ["", 'sandbox_mode = "read-only"', 'web_search = "disabled"', 'approval_policy = "untrusted"']
    ),
)
def test_codex_never_gives_what_is_denied(sandbox: str, policy: str, search: str, beside: str) -> None:
    values = {"sandbox_mode": sandbox, "approval_policy": policy, "web_search": search}
    lines = [f'{key} = "{value}"' for key, value in values.items() if value]
    text = "\n".join(('name = "x"', 'description = "d"', 'developer_instructions = "Do."', *lines))
    agent = PARSERS["codex"](text, "/x/x.toml", "user")[0]
    assert agent is not None
    given = get_given(apply_denials(agent, parse_rules(beside.encode(), "/config.toml", "codex")))
    if "read-only" in (sandbox, beside[-10:-1]) or "untrusted" in f"{policy} {beside}":
        assert not given & {"edit", "write"}
    if search == "disabled" or "disabled" in beside or not search:
        assert not given & {"web_search", "fetch_content"}
    assert given <= {*BUILTIN_TOOLS, "web_search"}


@given(readonly=st.sampled_from(["true", "yes", "1", "[true]", "{}", "readonly"]))
def test_cursor_never_writes_in_doubt(readonly: str) -> None:
    assert not get_given(read(f"readonly: {readonly}", "cursor")) & {"write", "edit"}
