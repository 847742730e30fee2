import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.tool import CODINGCODE
from tests.unit.definitions.parsing import inspect, parse, read

HEAD = "name: searcher\ndescription: 专门搜索代码库\n"


def read_tools(front: str) -> DeclaredTools:
    return read(HEAD + front, "codingcode").tools


@pytest.mark.spec("codingcode:11", "codingcode:15")
def test_seed_profile_is_read() -> None:
    front = HEAD + (
        'tools: ["read_file", "search_code", "search_files"]\nreadonly: true\nmaxSteps: 100\n'
        "model: deepseek-chat\ndisabled: false\nmcpServers: [github]\n"
        'hooks: [{"event": "tool.execute.before", "command": "check", "timeout": 5}]'
    )
    assert parse(front, "You search.", "codingcode") == (
        Definition(
            name="searcher",
            dialect="codingcode",
            source="user",
            path="/x/file.md",
            description="专门搜索代码库",
            prompt="You search.",
            readonly=True,
            tools=DeclaredTools(
                ("read_file", "search_code", "search_files"),
                aliases={"read_file": "read", "search_code": "grep", "search_files": "find"},
            ),
            mcp_servers=("github",),
            hooks=({"event": "tool.execute.before", "command": "check", "timeout": 5},),
            model="deepseek-chat",
            max_turns=100,
            lines={
                "name": 2, "description": 3, "tools": 4, "readonly": 5, "max_turns": 6, "model": 7, "disabled": 8,
                "mcpServers": 9, "hooks": 10,
            },
        ),
        [],
    )  # fmt: skip


@pytest.mark.spec("codingcode:11")
@pytest.mark.parametrize("tools", ['["read_file","ls"]', "[read_file, ls]", "read_file, ls", "\n  - read_file\n  - ls"])
def test_all_list_forms_mean_one(tools: str) -> None:
    assert read_tools(f"tools: {tools}") == DeclaredTools(("read_file", "ls"), aliases={"read_file": "read"})


@pytest.mark.spec("codingcode:12")
def test_no_tools_field_asks_all() -> None:
    assert read_tools("") == DeclaredTools(aliases=CODINGCODE)


@pytest.mark.parametrize("tools", ["", "null", "5", "true", "{a: b}"])
def test_odd_tool_lists_give_none(tools: str) -> None:
    assert read_tools(f"tools: {tools}") == DeclaredTools((), selectors=("ext:",))


def test_denied_names_are_mapped() -> None:
    assert read_tools("disallowed_tools: execute_command, wirte_file").denied == ("bash", "wirte_file", "write")


@pytest.mark.spec("codingcode:10")
@pytest.mark.parametrize("front", ["name: a", "description: b", "name:\ndescription: b", "name: a\ndescription: ''"])
def test_name_and_description_are_required(front: str) -> None:
    definition, told = inspect(front, dialect="codingcode")
    assert (definition, [item.severity for item in told]) == (None, ["error"])


@pytest.mark.spec("codingcode:7")
@pytest.mark.parametrize(
    ("front", "enabled", "told"),
    [
        ("disabled: true", False, []),
        ("disabled: 1", False, []),
        ("disabled: false", True, []),
        ("disabled: 0", True, []),
        ("disabled:", True, []),
        ("disabled: yes", False, ["field"]),
        ("disabled: no", False, ["field"]),
        ("enabled: false", False, []),
    ],
)
def test_disabled_is_read(front: str, enabled: bool, told: list[str]) -> None:
    definition, codes = parse(HEAD + front, dialect="codingcode")
    assert definition is not None and (definition.enabled, codes) == (enabled, told)


def test_prompt_key_beats_body() -> None:
    assert read(HEAD + "systemPrompt: From the key", "codingcode", body="From the body").prompt == "From the key"


def test_empty_body_has_default() -> None:
    definition, told = parse(HEAD, "", "codingcode")
    assert definition is not None and (definition.prompt, told) == ("You are a specialized agent.", ["empty-body"])


def test_hooks_may_be_yaml() -> None:
    front = HEAD + "hooks:\n  - event: a\n    command: b\n    enabled: true"
    assert read(front, "codingcode").hooks == ({"event": "a", "command": "b", "enabled": True},)


@pytest.mark.parametrize("hooks", ["[1]", "{a: b}", "text", "[", "'[1, '"])
def test_bad_hooks_stand_as_a_guard(hooks: str) -> None:
    definition, told = inspect(HEAD + f"hooks: {hooks}", dialect="codingcode")
    assert (definition is None or definition.hooks == ({},)) and [item.severity for item in told] == ["error"]


@pytest.mark.spec("codingcode:14")
def test_writers_in_readonly_are_told() -> None:
    assert parse(HEAD + "readonly: true\ntools: [read_file, write_file]", dialect="codingcode")[1] == ["contradiction"]


def test_crlf_profile_is_read() -> None:
    from retinue.definitions.dialects.codingcode import parse as parse_profile

    text = f"---\n{HEAD}---\nbody\n"
    assert parse_profile(text.replace("\n", "\r\n"), "a.md", "user") == parse_profile(text, "a.md", "user")
