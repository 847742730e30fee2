import json
import signal

import pytest

from retinue.testing.process import open_cli
from tests.frontends.rpc_caller import call as open_rpc

NO_ANSWER = "no answer: decide yourself and say so"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def call(name, **arguments):
    return [{"name": name, "arguments": arguments}]


BEGIN = [
    to("^begin", calls=call("Agent", subagent_type="Explore", prompt="look", description="a look")),
    to("^begin", text="started"),
]
ASK = to("^look", calls=call("ask_parent", question="Which port?"))
ANSWER = [
    to("task-question", calls=call("answer_subagent", id="q1", text="8080")),
    to("task-question", text="answered"),
]
AGAIN = [
    *ANSWER,
    to('^Answer to your question "Which port\\?": ', text="found"),
    to("task-notification", text="all done"),
]
HANG = to("task-question", text="hm", delay_ms=60_000)


def pick(lines, *kinds):
    records = [json.loads(line) for line in lines]
    return [record for record in records if record["type"] in kinds]


def test_events_name_question_and_answer(place):
    replies = [*BEGIN, ASK, to("^look", text="found"), *ANSWER, to("task-notification", text="all done")]
    done = place.run("-p", "--mode", "json", "begin", replies=replies)
    asked, answered = pick(done.stdout.splitlines(), "subagents:asked", "subagents:answered")
    about = {"agentType": "Explore", "description": "a look", "depth": 1, "id": asked["id"], "questionId": "q1"}
    assert asked == {**about, "type": "subagents:asked", "question": "Which port?", "options": []}
    assert answered == {**about, "type": "subagents:answered", "answer": "8080", "by": "parent"}


def kill_asking(place, *replies, settings=None, until=b"<question-id>"):
    """Start a main agent whose child asks, and kill the process while the question waits."""
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings or {}))
    model = ["--model", place.script(*replies)]
    with open_cli([*model, "--mode", "json", "-p", "begin"], place.work, home=place.home) as process:
        for line in process.stdout:
            if until in line:  # by default: the main agent has seen it
                break
        process.send_signal(signal.SIGKILL)
        process.wait(10)


@pytest.mark.parametrize("runner", ["inprocess", "durable", "process"])
def test_question_survives_a_killed_process(place, runner):
    kill_asking(place, *BEGIN, ASK, HANG, settings={"runner": runner})
    done = place.run("-p", "--mode", "json", "-c", "next", replies=AGAIN)
    asked = [record for record in pick(done.stdout.splitlines(), "message_end") if "<question-id>" in str(record)]
    (answered,) = pick(done.stdout.splitlines(), "subagents:answered")
    (completed,) = pick(done.stdout.splitlines(), "subagents:completed")
    assert (answered["answer"], completed["result"], bool(asked)) == ("8080", "found", True)
    assert completed["id"] == answered["id"] and done.status == 0
    assert "interrupted" not in done.stdout.partition("<task-notification>")[2]


LEAD = "---\nname: lead\ndescription: d\ntools: read, ask_parent, Agent, answer_subagent\n---\nWork.\n"
NESTED = [
    to("^begin", calls=call("Agent", subagent_type="lead", prompt="steer", description="a lead")),
    to("^begin", text="started"),
    to("^steer", calls=call("Agent", subagent_type="Explore", prompt="look", description="a look")),
    to("^steer", text="waiting"),
    ASK,
]


@pytest.fixture
def lead(place):
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "lead.md").write_text(LEAD)


@pytest.mark.parametrize(("answers", "answer"), [(ANSWER, "8080"), ([to("task-question", text="hm")], NO_ANSWER)])
def test_question_of_nested_run_reaches_the_main_agent_after_a_crash(place, lead, answers, answer):
    # The agent that started it ended with the old process, so nobody else is left to answer.
    kill_asking(place, *NESTED, HANG, until=b'"subagents:asked"')
    replies = [*answers, to(f'^Answer .*": {answer}', text="found"), AGAIN[-1]]
    done = place.run("-p", "--mode", "json", "-c", "next", replies=replies)
    (answered,) = pick(done.stdout.splitlines(), "subagents:answered")
    (completed,) = pick(done.stdout.splitlines(), "subagents:completed")
    assert (answered["id"], completed["result"]) == (completed["id"], "found")
    assert "<result>found</result>" in done.stdout and "all done" in done.stdout


def test_question_of_nested_run_reaches_a_durable_parent_after_a_crash(place, lead):
    kill_asking(place, *NESTED, HANG, settings={"runner": "durable"}, until=b'"subagents:asked"')
    notified = to("task-notification", text="lead done")
    replies = [to("^next", text="fine"), *AGAIN[:-1], notified, AGAIN[-1]]
    done = place.run("-p", "--mode", "json", "-c", "next", replies=replies)
    completed = pick(done.stdout.splitlines(), "subagents:completed")
    assert [(record["agentType"], record["result"]) for record in completed] == [
        ("Explore", "found"),
        ("lead", "lead done"),
    ]


def test_nested_process_child_asks(place, lead):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    notified = to("task-notification", text="lead done")
    replies = [*NESTED, to("^look", text="found"), *ANSWER, notified, to("task-notification", text="all done")]
    done = place.run("-p", "--mode", "json", "begin", replies=replies)
    (completed,) = pick(done.stdout.splitlines(), "subagents:completed")
    assert (done.status, completed["result"], done.stderr) == (0, "lead done", "")


def test_ignored_question_of_killed_process_gets_no_answer(place):
    kill_asking(place, *BEGIN, ASK, HANG)
    replies = [to("task-question", text="hm"), to(f'^Answer .*": {NO_ANSWER}', text="decided"), AGAIN[-1]]
    done = place.run("-p", "--mode", "json", "-c", "next", replies=replies)
    (answered,) = pick(done.stdout.splitlines(), "subagents:answered")
    (completed,) = pick(done.stdout.splitlines(), "subagents:completed")
    assert (answered["by"], completed["result"]) == ("nobody", "decided")


def test_user_of_rpc_is_asked_again(place):
    kill_asking(place, *BEGIN, ASK, HANG)
    with open_rpc(place, "-c", replies=AGAIN) as caller:
        asked = caller.read_until("extension_ui_request")
        assert (asked["method"], asked["title"].endswith(": Which port?")) == ("input", True)
        caller.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], "value": "9000"}))
        assert caller.read_until("subagents:answered")["by"] == "user"
        assert caller.read_until("subagents:completed")["result"] == "found"


def test_process_child_asks(place):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process", "limits": {"idleSeconds": 20}}))
    replies = [*BEGIN, ASK, to("^look", text="found"), *ANSWER, to("task-notification", text="all done")]
    done = place.run("-p", "--mode", "json", "begin", replies=replies)
    kinds = [record["type"] for record in pick(done.stdout.splitlines(), "subagents:asked", "subagents:completed")]
    assert (done.status, kinds, done.stderr) == (0, ["subagents:asked", "subagents:completed"], "")


def test_blocked_caller_has_nobody_to_ask(place):
    replies = [to("look", calls=call("ask_parent", question="Which port?")), to("look", text="found")]
    agent = "---\nname: asker\ndescription: d\nreadonly: true\ntools: read, ask_parent\n---\nWork.\n"
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "asker.md").write_text(agent)
    done = place.run("run", "--json", "asker", "look", "--model", place.script(*replies))
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.status, result["output"]) == (0, "found")
    assert NO_ANSWER in (place.agent_dir / result["sessionFile"]).read_text()
