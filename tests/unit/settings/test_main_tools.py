import pytest

from retinue.core.errors import UsageError
from retinue.settings.main_tools import AvailableTools, choose_main_tools, choose_surfaces, list_surfaces
from retinue.settings.request import Request
from retinue.settings.subagents import SubagentsConfig

AVAILABLE = AvailableTools(
    usual=["read", "bash"],
    beside=["web_search"],
    on_request=["todo"],
    surfaces=["fleet", "subagent"],
    is_served=lambda name: name.startswith("mcp__"),
)


def choose(surfaces=(), *, is_inside=False, **changes):
    return choose_main_tools(Request(**changes), AVAILABLE, surfaces, is_child=is_inside)


def test_default_tools_come_with_surfaces():
    assert choose() == (["read", "bash", "web_search"], [])
    assert choose(["subagent"]) == (["read", "bash", "web_search", "subagent"], [])


def test_named_tools_replace_the_default():
    assert choose(["subagent"], tools=("todo", "read", "read")) == (["todo", "read"], [])
    assert choose(tools=("read", "Agent"), exclude_tools=("read",)) == (["Agent"], [])


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match=r"there is no tool 'raed'; available: .*read.*web_search.*subagent"):
        choose(tools=("raed",))
    with pytest.raises(UsageError, match="'raed'"):
        choose(exclude_tools=("raed",))
    with pytest.raises(UsageError, match="'dispatch_agent'"):
        choose(tools=("dispatch_agent",))


def test_tools_of_servers_come_later():
    assert choose(tools=("read", "mcp__far__do"), exclude_tools=("mcp__far__not",)) == (["read"], [])


def test_missing_tools_of_a_calling_program_are_reported():
    assert choose(tools=("read", "its_own"), is_inside=True, is_child=True) == (["read"], ["its_own"])


def test_only_children_may_finalize():
    assert choose(tools=("subagent_finalize",), is_inside=True) == (["subagent_finalize"], [])
    with pytest.raises(UsageError, match="subagent_finalize"):
        choose(tools=("subagent_finalize",))


def test_children_get_no_surface_by_default():
    crew = SubagentsConfig(surfaces=("fleet", "dispatch"))
    assert choose_surfaces(Request(), crew, ["fleet", "subagent"], is_child=False) == ["fleet"]
    assert choose_surfaces(Request(), crew, ["fleet", "subagent"], is_child=True) == []
    assert choose_surfaces(Request(surfaces=("*",)), crew, ["fleet", "subagent"], is_child=True) == [
        "fleet",
        "subagent",
    ]


def test_dispatch_can_be_switched_off():
    assert "dispatch" in list_surfaces(Request(), SubagentsConfig(), is_child=False, has_dispatch=True)
    assert "dispatch" not in list_surfaces(Request(), SubagentsConfig(), is_child=False, has_dispatch=False)
