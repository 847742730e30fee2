import pytest

from retinue.core.tool import ELSEWHERE, suggest_tool
from retinue.core.tool_table import KNOWN_TOOLS


def test_foreign_names_lead_to_real_tools():
    assert set(ELSEWHERE.values()) <= KNOWN_TOOLS
    assert not set(ELSEWHERE) & KNOWN_TOOLS


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Glob", " (that is Claude Code's name; here it is 'find')"),
        ("WebFetch", " (that is Claude Code's name; here it is 'fetch_content')"),
        ("Read", " (did you mean 'read'?)"),
        ("raed", " (did you mean 'read'?)"),
        ("NotebookEdit", ""),
    ],
)
def test_hint_names_what_was_meant(name, hint):
    assert suggest_tool(name, ["read", "write"]) == hint
