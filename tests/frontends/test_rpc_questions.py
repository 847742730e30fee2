"""Questions of runs, as a program that drives retinue is asked them."""

import json

import pytest

from tests.frontends.rpc_caller import call

COMMAND = "printf 'a\x1b[2Jb' > made.txt; echo " + "x" * 3000
ASKS = [{"calls": [{"name": "bash", "arguments": {"command": COMMAND}}]}, {"text": "Done."}]


@pytest.fixture
def asking(place):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"approvals": "ask"}))
    return place


def ask(caller):
    caller.get("prompt", message="go")
    return caller.read_until("extension_ui_request")


def test_question_names_all_of_it(asking):
    with call(asking, "--tools", "bash", replies=ASKS) as caller:
        asked = ask(caller)
    assert (asked["method"], asked["options"][0], asked["options"][-1]) == ("select", "allow", "deny")
    assert asked["title"].startswith("main agent (")
    assert COMMAND.replace("\x1b", "\\x1b") in asked["title"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("response", "is_done"),
    [
        ({"value": "allow"}, True),
        ({"value": "deny"}, False),
        ({"value": "Allow, please"}, False),
        ({"value": True}, False),
        ({"confirmed": True}, False),
        ({"cancelled": True, "value": "allow"}, False),
        ({}, False),
    ],
)
def test_only_a_yes_allows_it(asking, response, is_done):
    with call(asking, "--tools", "bash", replies=ASKS) as caller:
        asked = ask(caller)
        caller.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], **response}))
        caller.read_until("agent_settled")
        assert (asking.work / "made.txt").exists() == is_done


def test_stray_answers_are_ignored(asking):
    with call(asking, "--tools", "bash", replies=ASKS) as caller:
        asked = ask(caller)
        for odd in ("zz", 7, None, {"a": 1}):
            caller.write(json.dumps({"type": "extension_ui_response", "id": odd, "value": "allow"}))
        assert caller.get("get_state")["isStreaming"] is True
        caller.get("abort")
        caller.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "value": "allow"}))
        assert caller.get("get_state")["isStreaming"] is False
    assert not (asking.work / "made.txt").exists()


def test_caller_that_leaves_has_not_allowed_it(asking):
    with call(asking, "--tools", "bash", replies=ASKS) as caller:
        ask(caller)
        assert caller.close() == 0
    assert not (asking.work / "made.txt").exists()
