import pytest

from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec
from retinue.models.offline.actions import Find, List, Read, SearchAction, find_tools, to_action, to_call

ACTIONS = [
    SearchAction("a|b 'c'", limit=7),
    SearchAction("x y", "src/a b.py", ignore_case=True, literal=True),
    Find("*", 3000),
    Find("*.py", 10, "src"),
    Read("docs/it's.md", 5, 20),
    List("src"),
]


def spec(name, field):
    return ToolSpec(name, "", {"type": "object", "properties": {field: {"type": "string"}}})


FILES = [spec("grep", "pattern"), spec("find", "pattern"), spec("read", "path"), spec("ls", "path")]


@pytest.mark.parametrize("action", ACTIONS)
def test_calls_lead_back_to_actions(action):
    assert to_action(to_call(action, find_tools(FILES), "rules_1")) == action


def test_arguments_have_the_tools_names():
    call = to_call(ACTIONS[1], find_tools(FILES), "rules_1")

    arguments = {"pattern": "x y", "path": "src/a b.py", "ignoreCase": True, "literal": True}
    assert call == ToolCall("rules_1", "grep", arguments)


def test_foreign_parameters_are_left_alone():
    kit = find_tools([spec("read", "url"), spec("grep", "pattern"), spec("deploy", "path")])

    assert kit == {SearchAction: "grep"}


@pytest.mark.parametrize("call", [ToolCall("1", "grep", {"pattern": 5}), ToolCall("1", "bash", {"command": "ls"})])
def test_calls_of_other_models_are_no_actions(call):
    assert to_action(call) is None
