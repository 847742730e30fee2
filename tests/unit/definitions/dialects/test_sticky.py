import pytest

from retinue.core.definition import DeclaredTools, Definition
from tests.unit.definitions.parsing import inspect, parse, read

NAME = "name: scout\n"


@pytest.mark.spec("sticky:18", "sticky:24")
def test_seed_prompt_is_read() -> None:
    front = "name: scout\ndescription: Fast codebase reconnaissance\napproved_tools:\n  - read\n  - bash"
    assert parse(front, "System prompt.", "sticky") == (
        Definition(
            name="scout",
            dialect="sticky",
            source="user",
            path="/x/file.md",
            description="Fast codebase reconnaissance",
            prompt="System prompt.",
            tools=DeclaredTools(("read", "bash")),
            completion="finalize",
            lines={"name": 2, "description": 3, "approved_tools": 4},
        ),
        [],
    )


@pytest.mark.spec("sticky:18", "sticky:19", "sticky:20", "sticky:22")
@pytest.mark.parametrize(
    ("front", "tools", "told"),
    [
        ("", DeclaredTools(inherits=True), []),
        ("allowed_tools: [read]", DeclaredTools(("read",)), []),
        ("approved_tools: read, grep", DeclaredTools(("read", "grep")), []),
        ("approved_tools: []", DeclaredTools(()), []),
        ("approved_tools:", DeclaredTools((), selectors=("ext:",)), ["field"]),
        ("approved_tools: {a: b}", DeclaredTools((), selectors=("ext:",)), ["field"]),
        ("denied_tools: [bash]", DeclaredTools(inherits=True, denied=("bash",)), []),
        ("denied_tools: [Bash]", DeclaredTools(inherits=True, denied=("Bash", "bash")), ["unknown-tool"]),
        ("denied_tools: {bash: 1}", DeclaredTools((), selectors=("ext:",)), ["field"]),
        ("approved_tools: [read, ls]\nallowed_tools: [ls]", DeclaredTools(("ls",)), ["contradiction"]),
        ("approved_tools: [read, subagent]", DeclaredTools(("read",)), ["unknown-tool"]),
        ("approved_tools: [read, subagent_finalize]", DeclaredTools(("read",)), []),
        ("approved_tools: [raed]", DeclaredTools(("raed",)), ["unknown-tool"]),
        ("tools: [read]", DeclaredTools(("read",)), []),
        ("approved_tool: [read]", DeclaredTools(("read",)), ["unknown-key"]),
        ("disallowedTools: [bash]", DeclaredTools(inherits=True, denied=("bash",)), ["unknown-key"]),
    ],
)
def test_tool_lists_are_read(front: str, tools: DeclaredTools, told: list[str]) -> None:
    definition, codes = parse(NAME + front, dialect="sticky")
    assert definition is not None and (definition.tools, codes) == (tools, told)


@pytest.mark.spec("sticky:21")
@pytest.mark.parametrize("allow", ["approved_tools", "allowed_tools", "tools"])
def test_both_lists_are_refused(allow: str) -> None:
    definition, told = inspect(f"{NAME}{allow}: [read]\ndenied_tools: [bash]", dialect="sticky")
    assert definition is None
    assert [(item.code, item.severity, item.line) for item in told] == [("contradiction", "error", 4)]
    assert "mutually exclusive" in told[0].message and "ambiguous" in told[0].message


def test_name_is_required() -> None:
    assert parse("description: x", dialect="sticky") == (None, ["name"])


def test_foreign_limits_are_kept() -> None:
    definition = read(NAME + "readonly: true\nenabled: false", "sticky")
    assert (definition.readonly, definition.enabled) == (True, False)
