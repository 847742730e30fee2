import pytest

from retinue.core.model import ToolSpec
from retinue.models.offline.actions import Find, List, Read, SearchAction, ToolNames, to_action

ACTIONS = [
    SearchAction("a|b 'c'", limit=7),
    SearchAction("x y", "src/a b.py", ignore_case=True, literal=True, context=2),
    Find("*", 3000),
    Find("*.py", 10, "src"),
    Read("docs/it's.md", 5, 20),
    List("src"),
]


def spec(name, field):
    return ToolSpec(name, "", {"type": "object", "properties": {field: {"type": "string"}}})


FILES = [spec("grep", "pattern"), spec("find", "pattern"), spec("read", "path"), spec("ls", "path")]


@pytest.mark.parametrize("tools", [FILES, [spec("bash", "command")]])
@pytest.mark.parametrize("action", ACTIONS)
def test_calls_lead_back_to_actions(tools, action):
    assert to_action(ToolNames.of(tools).to_call(action, "rules_1")) == action


def test_foreign_parameters_are_left_alone():
    kit = ToolNames.of([spec("read", "url"), spec("grep", "pattern"), spec("deploy", "path")])

    assert kit.names == {"grep": "grep"}


def test_bash_stands_in():
    kit = ToolNames.of([spec("bash", "command"), spec("read", "path")])

    assert [kit.to_call(action, "1").name for action in (Read("a"), List("."))] == ["read", "bash"]
