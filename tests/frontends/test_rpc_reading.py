"""What a program may write to `retinue --mode rpc`, right and wrong, line by line."""

import json
import time

import pytest

from tests.frontends.rpc_caller import call


@pytest.fixture(scope="module")
def patient(shared_place):
    """One process that hears all mistakes, and still ends as it should."""
    with call(shared_place) as caller:
        yield caller
        assert caller.close() == 0


SLOW = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 47"}}]}


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({"type": "set_model", "provider": "no", "modelId": "such"}, "Model not found: no/such"),
        ({"type": "set_model", "provider": "no"}, "set_model: modelId is missing"),
        ({"type": "set_thinking_level", "level": "huge"}, "set_thinking_level: level is 'huge'"),
        ({"type": "set_steering_mode", "mode": 3}, "set_steering_mode: mode is '3'"),
        ({"type": "set_auto_retry", "enabled": "yes"}, "set_auto_retry: enabled is 'yes'"),
        ({"type": "set_session_name", "name": "  "}, "Session name cannot be empty"),
        ({"type": "get_entries", "since": "zz"}, "Entry not found"),
        ({"type": "fork", "entryId": "zz"}, "Invalid entry ID for forking"),
        ({"type": "clone"}, "Cannot clone session"),
        ({"type": "compact"}, "Nothing to compact"),
        ({"type": "bash", "command": ""}, "the command is empty"),
        ({"type": "bash", "command": "a\0b"}, "command 'a\\x00b' contains a NUL"),
        ({"type": "switch_session", "sessionPath": "/dev/null/x"}, "there is no session file '/dev/null/x'"),
        ({"type": "switch_session", "sessionPath": "/dev/null"}, ""),
        ({"type": "switch_session", "sessionPath": "/" * 5000}, "'///"),
        ({"type": "switch_session", "sessionPath": ""}, "'' is not the path of a session file"),
        ({"type": "export_html", "outputPath": "/dev/null/x"}, ""),
        ({"type": "prompt", "message": ["a"]}, "prompt: message is"),
        ({"type": "prompt", "message": " "}, "the task is empty"),
        ({"type": "prompt", "message": "a", "images": "b"}, "prompt: images is 'b'"),
        ({"type": "no_such"}, "Unknown command: no_such"),
        ({"type": "x\x1b[2J" * 200}, "Unknown command: x\\x1b[2J"),
    ],
)
def test_mistakes_get_an_error_answer(patient, command, error):
    patient.write(json.dumps({"id": "a", **command}))
    answer = patient.read_until("response")
    assert (answer["id"], answer["command"], answer["success"]) == ("a", command["type"], False)
    assert answer["error"].startswith(error)
    assert len(answer["error"]) < 600


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "line", ["{bad", "", "42", "null", "[]", '"text"', "\xff\xfe", '{"type": NaN}', "[" * 100_000, '{"a":' * 5000]
)
def test_bad_lines_get_a_parse_answer(patient, line):
    patient.write(line.encode("latin-1"))
    answer = dict(patient.read_until("response"))
    assert answer.pop("error").startswith("Failed to parse command: ")
    assert answer == {"type": "response", "command": "parse", "success": False}
    assert patient.get("get_messages") == {"messages": []}


@pytest.mark.parametrize("command", [{"id": 7}, {"id": 7, "type": None}, {"id": 7, "type": {"a": 1}}])
def test_command_without_type_is_unknown(patient, command):
    patient.write(json.dumps(command))
    answer = dict(patient.read_until("response"))
    assert answer.pop("error").startswith("Unknown command: ")
    assert answer == {"id": 7, "type": "response", "success": False}


def test_line_of_a_hundred_megabytes(place):
    with call(place) as caller:
        for _ in range(100):
            caller.process.stdin.write(b"x" * 1_000_000)
        caller.write("")
        answer = caller.read()
        assert answer["error"] == "Failed to parse command: the line is too long"
        assert caller.get("get_messages") == {"messages": []}


def test_only_lf_ends_a_line(place):
    with call(place) as caller:
        caller.write(json.dumps({"type": "set_session_name", "name": "a\u2028b\u0085c"}, ensure_ascii=False) + "\r")
        caller.read_until("response")
        assert caller.get("get_state")["sessionName"] == "a b c"


def test_odd_words_survive(place):
    with call(place, "--tools", "") as caller:
        caller.write(b'{"type": "prompt", "message": "\\ud800 \xff \\u0000 \\u2028"}')
        caller.read_until("agent_settled")
        (user,) = [m for m in caller.get("get_messages")["messages"] if m["role"] == "user"]
        assert user["content"][0]["text"][-4:] == " \0 \u2028"
        assert caller.close() == 0


def test_last_line_may_lack_its_end(place):
    commands = '{"type": "get_messages"}\n{"type": "set_session_name", "name": "x"}'
    done = place.run("--mode", "rpc", stdin=commands, replies=[])
    answers = [record["command"] for record in done.lines if record["type"] == "response"]
    assert (done.status, answers) == (0, ["get_messages", "set_session_name"])


def test_reader_that_goes_away_ends_it(place):
    with call(place, "--tools", "bash", replies=[SLOW]) as caller:
        caller.get("prompt", message="go")
        caller.process.stdout.close()
        caller.send("get_state")
        assert caller.process.wait(timeout=5) == 0


def test_caller_may_read_late(place):
    with call(place, "--tools", "") as caller:
        caller.say("word " * 20_000)
        asked = [caller.send("get_messages") for _ in range(40)]
        time.sleep(0.3)
        assert [caller.read_until("response")["id"] for _ in asked] == asked
