import os
from pathlib import Path

import pytest

import retinue.definitions
from retinue.core.definition import DeclaredTools, Definition
from retinue.definitions.discover import AgentFolders
from retinue.definitions.registry import DefinitionRegistry

NOWHERE = Path("/nonexistent/place")
LOOK = ("read", "grep", "find", "ls", "lsp")
EXPLORE = ("read", "bash", "grep", "find", "ls", "ask_parent")
SEARCH = {"read_file": "read", "search_files": "find", "search_code": "grep"}


@pytest.fixture(scope="module")
def builtins() -> dict[str, Definition]:
    found = DefinitionRegistry(AgentFolders(NOWHERE, NOWHERE), trusted=False).read()
    assert found.diagnostics == ()
    return {item.name: item for item in found.list("dispatch")}


@pytest.mark.spec("fleet:B21", "devkit:13", "codingcode:15")
def test_builtins_ask_for_these_tools(builtins: dict[str, Definition]) -> None:
    web = ("web_search", "fetch_content", "get_search_content", "convert_content")
    explore = ("read_file", "search_files", "search_code", "fetch_url", "tool_search")
    plan = ("read_file", "search_files", "search_code", "execute_command", "fetch_url", "tool_search")
    fetch = {**SEARCH, "fetch_url": "fetch_content"}
    assert {item.name: (item.dialect, item.readonly, item.max_turns, item.tools) for item in builtins.values()} == {
        "Explore": ("pi", True, None, DeclaredTools(EXPLORE)),
        "Plan": ("pi", True, None, DeclaredTools(EXPLORE)),
        "explore": ("codingcode", True, 180, DeclaredTools(explore, aliases=fetch)),
        "explorer": ("pi", True, None, DeclaredTools(LOOK)),
        "general-purpose": ("pi", False, None, DeclaredTools(("ask_parent",), all_builtins=True)),
        "implementer": ("pi", True, None, DeclaredTools(LOOK)),
        "plan": ("codingcode", True, 180, DeclaredTools(plan, aliases={**fetch, "execute_command": "bash"})),
        "researcher": ("pi", True, None, DeclaredTools(web)),
        "reviewer": ("pi", True, None, DeclaredTools(LOOK)),
        "scout": ("sticky", False, None, DeclaredTools(("read", "grep", "find", "ls"))),
        "tester": ("pi", True, None, DeclaredTools(LOOK)),
    }


@pytest.mark.spec("fleet:B21")
def test_defaults_leave_the_rest_open(builtins: dict[str, Definition]) -> None:
    names = ("thinking", "max_turns", "inherit_context", "isolated", "isolation")
    for name in ("general-purpose", "Explore", "Plan"):
        item = builtins[name]
        assert {getattr(item, field) for field in names} == {None}
        assert (item.extensions, item.skills) == (True, True)


def test_explore_wishes_for_haiku(builtins: dict[str, Definition]) -> None:
    wishes = {item.name: (item.model, item.is_model_wish) for item in builtins.values() if item.model}
    assert wishes == {"Explore": ("haiku", True)}


def test_general_purpose_adds_nothing(builtins: dict[str, Definition]) -> None:
    item = builtins["general-purpose"]
    assert (item.display_name, item.prompt_mode, item.prompt) == ("Agent", "append", "")


def test_only_scout_finalizes(builtins: dict[str, Definition]) -> None:
    assert [item.name for item in builtins.values() if item.completion == "finalize"] == ["scout"]


def test_file_names_differ_beyond_case() -> None:
    folder = Path(retinue.definitions.__file__).parent / "builtin"
    for _, _, names in os.walk(folder):
        assert len({name.lower() for name in names}) == len(names)


def test_builtins_need_no_yaml() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path\n"
        "from retinue.definitions.registry import AgentFolders, DefinitionRegistry\n"
        "p = Path('/nonexistent'); DefinitionRegistry(AgentFolders(p, p), trusted=False).read()\n"
        "print('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
