from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.definition import DeclaredTools, Definition
from retinue.definitions.dialects import pi
from tests.unit.definitions.parsing import inspect, parse, read

FULL = """name: careful
description: Looks twice
display_name: Careful Carl
tools: "*, ext:mcp/search, web_search"
disallowed_tools: [bash]
extensions: [mcp, "/abs/foo.ts"]
exclude_extensions: pi-notify
skills: one, two
memory: project
model: anthropic/claude-haiku
thinking: off
max_turns: 0
prompt_mode: append
inherit_context: true
isolated: false
isolation: worktree
persist_session: true
session_dir: ~/kept
output_transcript: false
run_in_background: true
enabled: true
readonly: 1
allowed_subagents: Explore, Plan
color: blue
runner: process
max_tokens_total: 5000
max_cost: 0.5"""


@pytest.mark.spec("fleet:B22", "fleet:B28")
def test_every_field_is_read() -> None:
    definition, told = parse(FULL)
    lines = {line.partition(":")[0]: number for number, line in enumerate(FULL.split("\n"), 2)}
    del lines["run_in_background"]
    assert (definition, told) == (
        Definition(
            name="careful",
            dialect="pi",
            source="user",
            path="/x/file.md",
            description="Looks twice",
            display_name="Careful Carl",
            prompt="Do it.",
            prompt_mode="append",
            readonly=True,
            tools=DeclaredTools(("web_search",), True, denied=("bash",), selectors=("ext:mcp/search",)),
            allowed_subagents=("Explore", "Plan"),
            extensions=("mcp", "/abs/foo.ts"),
            exclude_extensions=("pi-notify",),
            skills=("one", "two"),
            memory="project",
            model="anthropic/claude-haiku",
            thinking="off",
            max_turns=0,
            max_tokens_total=5000,
            max_cost=0.5,
            isolated=False,
            inherit_context=True,
            isolation="worktree",
            persist_session=True,
            session_dir="~/kept",
            output_transcript=False,
            runner="process",
            color="blue",
            lines=lines,
        ),
        [],
    )


@pytest.mark.spec("fleet:B21")
def test_absent_fields_stay_unset() -> None:
    assert parse("description: x") == (
        Definition(
            name="file", dialect="pi", source="user", path="/x/file.md", description="x", prompt="Do it.",
            lines={"description": 2},
        ),
        [],
    )  # fmt: skip


@pytest.mark.spec("fleet:B23", "fleet:B24", "devkit:18")
@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("none", DeclaredTools(())),
        ('""', DeclaredTools(())),
        ("[]", DeclaredTools(())),
        ('"*"', DeclaredTools((), True)),
        ("All", DeclaredTools((), True)),
        ("[read, grep]", DeclaredTools(("read", "grep"))),
        ("read, , grep ,", DeclaredTools(("read", "grep"))),
        ('["read, grep", ls]', DeclaredTools(("read", "grep", "ls"))),
        ("\n  - read\n  - grep", DeclaredTools(("read", "grep"))),
        ("ext:x", DeclaredTools((), selectors=("ext:x",))),
        ("read, github:list_issues, mcp__git__log", DeclaredTools(("read", "github:list_issues", "mcp__git__log"))),
    ],
    ids=str,
)
def test_tool_lists_are_read(tools: str, expected: DeclaredTools) -> None:
    definition, told = parse(f"tools: {tools}")
    assert definition is not None and (definition.tools, told) == (expected, [])


@pytest.mark.spec("fleet:B23")
def test_no_tools_field_asks_all() -> None:
    assert read("description: x").tools == DeclaredTools()


@pytest.mark.parametrize("tools", ["", "null", "5", "true", "false", "{read: true}", "[[read]]", "[{read: 1}]", "1.5"])
def test_odd_tool_lists_give_none(tools: str) -> None:
    definition, told = parse(f"tools: {tools}")
    assert definition is not None and (definition.tools, told) == (DeclaredTools((), selectors=("ext:",)), ["field"])


@pytest.mark.attack("E5")
@pytest.mark.spec("fleet:B25")
def test_unknown_tools_are_told_with_closest() -> None:
    definition, told = inspect("name: a\ntools: read, gerp, Read")
    assert definition is not None and definition.tools.names == ("read", "gerp", "Read")
    assert [(item.line, item.code, item.message) for item in told] == [
        (3, "unknown-tool", "/x/file.md:3: tools: there is no tool 'gerp' (did you mean 'grep'?); not given"),
        (3, "unknown-tool", "/x/file.md:3: tools: there is no tool 'Read' (did you mean 'read'?); not given"),
    ]


@pytest.mark.spec("fleet:B33")
@pytest.mark.parametrize(
    ("denied", "names", "told"),
    [
        ("bash, write", ("bash", "write"), []),
        ("none", (), []),
        ("", (), []),
        ("Write, EDIT", ("Write", "EDIT", "write", "edit"), ["unknown-tool"] * 2),
        ("bsah", ("bsah", "bash"), ["unknown-tool"]),
        ("Task, WebFetch", ("Task", "WebFetch", "Agent", "fetch_content"), ["unknown-tool"] * 2),
        ("zzzzzz", ("zzzzzz",), ["unknown-tool"]),
        ('"*"', ("*",), []),
    ],
)
def test_denied_tools_are_read_widely(denied: str, names: tuple[str, ...], told: list[str]) -> None:
    definition, codes = parse(f"disallowed_tools: {denied}")
    assert definition is not None and (definition.tools, codes) == (DeclaredTools(denied=names), told)


@pytest.mark.parametrize("denied", ["{bash: true}", "5", "true", "[[bash]]"])
def test_unreadable_denial_gives_no_tools(denied: str) -> None:
    definition, told = parse(f"tools: read\ndisallowed_tools: {denied}")
    assert definition is not None and (definition.tools, told) == (DeclaredTools((), selectors=("ext:",)), ["field"])


@pytest.mark.spec("devkit:17")
@pytest.mark.parametrize("value", ["true", "True", "TRUE", "1", '"true"'])
def test_readonly_is_clear(value: str) -> None:
    assert [(item.readonly, told) for item, told in [parse(f"readonly: {value}")] if item] == [(True, [])]


@pytest.mark.parametrize("value", ["false", "False", "FALSE", "0", "no", "off", "null", "~", ""])
def test_not_readonly_is_clear(value: str) -> None:
    assert [(item.readonly, told) for item, told in [parse(f"readonly: {value}")] if item] == [(False, [])]


@pytest.mark.attack("E4")
@pytest.mark.parametrize("value", ["yes", "on", "tru", "[true]", "{a: b}", "2", "No", "t", '" true"', "1.0", "enabled"])
def test_doubtful_readonly_is_readonly(value: str) -> None:
    assert [(item.readonly, told) for item, told in [parse(f"readonly: {value}")] if item] == [(True, ["field"])]


@pytest.mark.parametrize(
    ("front", "change"),
    [
        ("read_only: true", {"readonly": True}),
        ("readOnly: true", {"readonly": True}),
        ("Readonly: true", {"readonly": True}),
        ("readolny: true", {"readonly": True}),
        ("tool: read", {"tools": DeclaredTools(("read",))}),
        ("tolls: read", {"tools": DeclaredTools(("read",))}),
        ("Tools: [read]", {"tools": DeclaredTools(("read",))}),
        ("allowed_tools: [read]", {"tools": DeclaredTools(("read",))}),
        ("approved-tools: read", {"tools": DeclaredTools(("read",))}),
        ("disallowedTools: bash", {"tools": DeclaredTools(denied=("bash",))}),
        ("denied_tools: bash", {"tools": DeclaredTools(denied=("bash",))}),
        ("enable: false", {"enabled": False}),
        ("isolate: true", {"isolated": True}),
        ("extension: false", {"extensions": False}),
        ("maxTurns: 3", {"max_turns": 3}),
        ("maxSteps: 3", {"max_turns": 3}),
    ],
)
def test_misspelt_limits_still_limit(front: str, change: dict[str, Any]) -> None:
    definition, told = parse(front)
    plain = read("description: x")
    assert definition is not None and told == ["unknown-key"]
    found = {field: getattr(definition, field) for field in plain.__struct_fields__ if field in change}
    assert found == change and all(getattr(plain, field) != value for field, value in change.items())


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("descripton", "unknown field 'descripton' (did you mean 'description'?): ignored"),
        ("modle", "unknown field 'modle' (did you mean 'model'?): ignored"),
        ("Model", "unknown field 'Model' (did you mean 'model'?): ignored"),
        ("promptMode", "unknown field 'promptMode' (did you mean 'prompt_mode'?): ignored"),
        ("zzz", "unknown field 'zzz': ignored"),
        ("disabled", "'disabled' has no meaning here; write `enabled: false` to switch the agent off"),
        ("provider", "'provider' has no meaning here; write `model: provider/id`"),
    ],
)
def test_unknown_keys_name_the_closest(key: str, end: str) -> None:
    definition, told = inspect(f"name: a\n{key}: x")
    assert definition is not None
    assert [(item.message, item.line, item.severity) for item in told] == [(f"/x/file.md:3: {end}", 3, "warning")]


@pytest.mark.spec("devkit:20")
def test_disabled_means_nothing_here() -> None:
    assert read("disabled: true").enabled is True


@pytest.mark.parametrize("key", ["package", "tags", "routingHints", "run_in_background"])
def test_harmless_keys_are_passed_over(key: str) -> None:
    assert parse(f"{key}: x")[1] == []


@pytest.mark.spec("fleet:B30")
@pytest.mark.parametrize(
    ("value", "enabled", "told"),
    [
        ("false", False, []),
        ("true", True, []),
        ("null", True, []),
        ('"false"', True, ["field"]),
        ("no", False, ["field"]),
        ("flase", False, ["field"]),
        ("0", False, ["field"]),
        ("[]", False, ["field"]),
    ],
)
def test_enabled_is_read(value: str, enabled: bool, told: list[str]) -> None:
    definition, codes = parse(f"enabled: {value}")
    assert definition is not None and (definition.enabled, codes) == (enabled, told)


@pytest.mark.parametrize("value", ["yes", "on", "[true]", "tru"])
def test_doubtful_switches_take_less(value: str) -> None:
    names = ("inherit_context", "isolated", "persist_session", "output_transcript")
    definition, told = parse("\n".join(f"{name}: {value}" for name in names))
    assert [getattr(definition, name) for name in names] == [False, True, False, False]
    assert told == ["field"] * 4


@pytest.mark.spec("fleet:B28")
@pytest.mark.parametrize(
    ("value", "turns", "told"),
    [
        ("0", 0, []),
        ("5", 5, []),
        ('"5"', 5, []),
        ("1e9", 10**9, []),
        ("", None, []),
        ("-1", None, ["field"]),
        ("ten", None, ["field"]),
        ("3.5", 3, ["field"]),
        ("0.5", None, ["field"]),
        (".inf", None, ["field"]),
        ("1e999", None, ["field"]),
        ("010", 10, []),
        ("[5]", None, ["field"]),
    ],
)
def test_max_turns_is_a_count(value: str, turns: int | None, told: list[str]) -> None:
    definition, codes = parse(f"max_turns: {value}")
    assert definition is not None and (definition.max_turns, codes) == (turns, told)


@pytest.mark.spec("fleet:B29")
@pytest.mark.parametrize(
    ("front", "field", "value"),
    [
        ("memory: projct", "memory", None),
        ("memory: 5", "memory", None),
        ("isolation: docker", "isolation", None),
        ("isolation: worktre", "isolation", "worktree"),
        ("isolation: {a: b}", "isolation", None),
        ("prompt_mode: apend", "prompt_mode", "replace"),
        ("thinking: extreme", "thinking", None),
        ("thinking: false", "thinking", None),
        ("runner: proces", "runner", None),
        ("max_cost: -1", "max_cost", None),
        ("max_tokens_total: 0", "max_tokens_total", None),
        ("model: [a, b]", "model", None),
        ("description: {a: b}", "description", "file"),
        ("extensions:", "extensions", False),
        ("extensions: no", "extensions", False),
        ("extensions: 5", "extensions", False),
        ("extensions: {a: b}", "extensions", False),
        ("exclude_extensions: {a: b}", "extensions", False),
        ("skills: yes", "skills", False),
        ("allowed_subagents: {a: b}", "allowed_subagents", ()),
    ],
)
def test_bad_values_are_told(front: str, field: str, value: object) -> None:
    definition, told = inspect(f"name: file\n{front}")
    assert (getattr(definition, field), [(item.code, item.line) for item in told]) == (value, [("field", 3)])


@pytest.mark.parametrize("value", ["off", "none", "no", "false"])
def test_isolation_can_be_vetoed(value: str) -> None:
    assert read(f"isolation: {value}").isolation == "off"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("false", False), ("none", False), ('""', False), ("[]", False), ("[a, b]", ("a", "b"))],
)
@pytest.mark.parametrize("field", ["extensions", "inherit_extensions", "skills", "inherit_skills"])
def test_selections_are_read(field: str, value: str, expected: object) -> None:
    definition, told = parse(f"{field}: {value}")
    assert (getattr(definition, field.removeprefix("inherit_")), told) == (expected, [])


@pytest.mark.parametrize(
    "front",
    [
        "isolated: true\nextensions: [mcp]",
        "extensions: [mcp]\nexclude_extensions: MCP",
        "session_dir: /tmp/x",
        "readonly: true\ntools: read, edit",
    ],
)
def test_contradictions_are_told(front: str) -> None:
    assert parse(front)[1] == ["contradiction"]


@pytest.mark.parametrize("runner", ["\n  type: external-cli\n  command: claude", " docker", " 5", " [process]"])
def test_foreign_runner_disables(runner: str) -> None:
    definition, told = parse(f"runner:{runner}")
    assert definition is not None and (definition.enabled, definition.runner, told) == (False, None, ["field"])


@pytest.mark.parametrize("model", ["", "inherit", "null"])
def test_no_model_is_inherited(model: str) -> None:
    assert read(f"model: {model}").model is None


@pytest.mark.parametrize("model", ["a/b/c", "haiku", "12345", "gpt-5:high", "on"])
def test_model_is_kept_as_written(model: str) -> None:
    assert (read(f"model: {model}").model, read(f"model: {model}").is_model_wish) == (model, False)


@pytest.mark.parametrize(
    "field", ["tools: read\ntools: bash", "readonly: true\nreadonly: false", "tools: read\nTools: bash"]
)
def test_limit_given_twice_refuses_file(field: str) -> None:
    definition, told = parse(field)
    assert (definition, "duplicate-key" in told) == (None, True)


def test_other_field_twice_takes_last() -> None:
    definition, told = parse("model: a\nmodel: b")
    assert definition is not None and (definition.model, told) == ("b", ["duplicate-key"])


@pytest.mark.parametrize(
    ("front", "name", "told"),
    [
        ("name: other", "other", []),
        ("name: on", "on", []),
        ("name: 12:30", None, ["name"]),
        ("name:", "file", []),
        ('name: "  "', "file", []),
        ("name: Code Reviewer", "file", ["name"]),
        ("name: ../../evil", None, ["name"]),
        ("name: main", None, ["name"]),
        ("name: con", None, ["name"]),
        ("name: '.'", None, ["name"]),
        ("name: " + "x" * 129, None, ["name"]),
        ("name: a:b", None, ["name"]),
        ("name: [a]", "file", ["field"]),
    ],
)
def test_names_are_checked(front: str, name: str | None, told: list[str]) -> None:
    definition, codes = parse(front)
    assert (definition and definition.name, codes) == (name, told)


@pytest.mark.parametrize("stem", ["a b", "main", "-x", "a\x1bb"])
def test_bad_stem_is_refused(stem: str) -> None:
    assert parse("description: x", path=f"/x/{stem}.md") == (None, ["name"])


@pytest.mark.spec("devkit:21")
@pytest.mark.parametrize(
    ("front", "prompt"), [("description: Finds bugs", "Finds bugs"), ("name: file", "You are the agent file.")]
)
def test_empty_body_has_default(front: str, prompt: str) -> None:
    definition, told = parse(front, "\n")
    assert definition is not None and (definition.prompt, told) == (prompt, ["empty-body"])


def test_appending_needs_no_body() -> None:
    definition, told = parse("prompt_mode: append", "")
    assert definition is not None and (definition.prompt, told) == ("", [])


@pytest.mark.attack("A10")
def test_long_and_hidden_bodies_are_told() -> None:
    told = inspect("name: a", "\n\nfine\nnot\u202e fine" + "x" * 100_000)[1]
    assert [(item.code, item.line) for item in told] == [("hidden-characters", 7), ("long-body", 6)]


@pytest.mark.attack("A10")
@pytest.mark.parametrize("text", ['"a \\e[31m"', "a \u202e b"])
def test_hidden_description_is_told(text: str) -> None:
    assert parse(f"description: {text}")[1] == ["hidden-characters"]


def test_body_may_hold_fences() -> None:
    assert inspect("name: a", "one\n---\ntwo")[0] == read("name: a", body="one\n---\ntwo")


def test_multi_line_description_is_one_line() -> None:
    assert read("description: |\n  one\n  two").description == "one two"


KEYS = st.sampled_from([*pi.FIELDS, "readOnly", "tolls", "disabled", "zzz"])
VALUES = st.one_of(
    st.sampled_from(
        ["true", "false", "[]", "{}", "read, bash", "none", "'*'", "5", "-1", "~", "[read, [x]]", "{a: 1}"]
    ),
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6), st.text(max_size=20))
def test_nothing_stops_the_parser(pairs: list[tuple[str, str]], body: str) -> None:
    definition, told = inspect("name: a\n" + "\n".join(f"{key}: {value}" for key, value in pairs), body)
    assert definition is not None or any(item.severity == "error" for item in told)


LIMITS = {
    "readonly": "true",
    "tools": "read, grep",
    "disallowed_tools": "bash",
    "enabled": "false",
    "isolated": "true",
    "extensions": "false",
    "exclude_extensions": "mcp",
    "max_turns": "3",
}


def misspell(word: str) -> set[str]:
    pairs = [(word[:at], word[at:]) for at in range(len(word))]
    dropped = {a + b[1:] for a, b in pairs}
    doubled = {a + b[0] + b for a, b in pairs}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in pairs if len(b) > 1}
    changed = {a + "x" + b[1:] for a, b in pairs}
    return {item for item in dropped | doubled | swapped | changed if item != word}


@pytest.mark.parametrize("key", LIMITS)
def test_no_slip_in_a_key_widens(key: str) -> None:
    field = "tools" if key == "disallowed_tools" else key
    right = getattr(read(f"{key}: {LIMITS[key]}"), field)
    lost = [slip for slip in misspell(key) if getattr(read(f"{slip}: {LIMITS[key]}"), field) != right]
    assert lost == []


@pytest.mark.parametrize("tool", ["bash", "edit", "write", "read", "grep"])
def test_no_slip_in_a_denial_widens(tool: str) -> None:
    lost = [slip for slip in misspell(tool) if not set(read(f"disallowed_tools: {slip}").tools.denied) - {slip}]
    assert lost == []


@pytest.mark.attack("E4")
@pytest.mark.parametrize("value", sorted(misspell("true") | misspell("TRUE")))
def test_no_slip_in_readonly_widens(value: str) -> None:
    assert read(f"readonly: {value}").readonly is True
