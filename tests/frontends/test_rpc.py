"""`retinue --mode rpc` as a program that drives it sees it."""

import json
import signal
import time

import pytest

from retinue.testing import MockServer
from tests.frontends.rpc_caller import call

SLOW = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 47"}}]}
SUMMARY = {"system": "hand-over notes"}
SLEEPS = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 0.4"}}]}


def test_prompt_is_answered_then_told(place):
    with call(place, "--no-session", "--tools", "") as caller:
        assert caller.ask("prompt", message="hi") == {"success": True, "data": {"disposition": "started"}}
        assert caller.read_until("agent_settled") == {"type": "agent_settled", "aborted": False}
        assert caller.close() == 0
    kinds = [kind for kind in caller.kinds if kind != "message_update"]
    message = ["message_start", "message_end"]
    assert kinds == ["response", "agent_start", "turn_start", *message * 3, "turn_end", "agent_end", "agent_settled"]


def test_state_tells_how_things_stand(place):
    with call(place, "--name", "work", "--tools", "read") as caller:
        caller.say("hi")
        state = caller.get("get_state")
    model = state.pop("model")
    assert (model["provider"], model["api"], model["input"]) == ("scripted", "scripted", ["text"])
    assert state.pop("sessionId") in state.pop("sessionFile")
    assert state == {
        "thinkingLevel": "off",
        "isStreaming": False,
        "isCompacting": False,
        "steeringMode": "one-at-a-time",
        "followUpMode": "one-at-a-time",
        "sessionName": "work",
        "autoCompactionEnabled": True,
        "messageCount": 3,
        "pendingMessageCount": 0,
    }


def test_busy_agent_wants_to_know_how(place):
    with call(place, "--tools", "bash", replies=[SLEEPS, {"text": "One."}, {"text": "Two."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        refused = caller.ask("prompt", message="more")
        steered = caller.get("prompt", message="left", streamingBehavior="steer")
        caller.get("follow_up", message="and then")
        assert caller.get("get_state")["pendingMessageCount"] == 2
        caller.read_until("agent_settled")
        said = [m["content"][0]["text"] for m in caller.get("get_messages")["messages"] if m["role"] == "user"]
    assert (refused["success"], "streamingBehavior" in refused["error"]) == (False, True)
    assert (steered, said) == ({"disposition": "queued"}, ["go", "left", "and then"])


@pytest.mark.parametrize("kind", ["steer", "follow_up"])
def test_blank_words_are_not_queued(place, kind):
    with call(place, "--tools", "bash", replies=[SLEEPS, {"text": "One."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        refused = caller.ask(kind, message=" \n")
        assert caller.get("get_state")["pendingMessageCount"] == 0
    assert (refused["success"], "is empty" in refused["error"]) == (False, True)


def test_queued_words_can_be_taken_back(place):
    with call(place, "--tools", "bash", replies=[SLEEPS, {"text": "One."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        caller.get("steer", message="left")
        caller.get("follow_up", message="right")
        assert caller.get("clear_queue") == {"steering": ["left"], "followUp": ["right"]}
        caller.read_until("agent_settled")
        assert caller.get("get_session_stats")["userMessages"] == 1


def test_abort_is_answered_at_rest(place):
    with call(place, "--tools", "bash", replies=[SLOW, {"text": "Again."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        begun = time.monotonic()
        assert caller.ask("abort") == {"success": True}
        assert time.monotonic() - begun < 2
        assert [r for r in caller.seen if r["type"] == "agent_settled"] == [{"type": "agent_settled", "aborted": True}]
        assert caller.get("get_state")["isStreaming"] is False
        assert caller.say("again") == "Again."


def test_images_go_with_a_prompt(place):
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    with call(place, "--tools", "") as caller:
        caller.say("look", images=[image])
        user = caller.get("get_messages")["messages"][1]
        bad = caller.ask("prompt", message="look", images=[{"data": 1}])
    assert user["content"] == [{"type": "text", "text": "look"}, image]
    assert bad["error"].startswith("prompt: images[0] is")


@pytest.fixture
def two_models(place):
    """A server with two models; the name of the first one."""
    with MockServer.in_thread({"replies": [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]}) as server:
        models = server.models_json(api="openai-completions", reasoning=True)
        (provider,) = models["providers"]
        first = models["providers"][provider]["models"][0]
        models["providers"][provider]["models"] = [first, {**first, "id": "other", "name": "other"}]
        (place.agent_dir / "models.json").write_text(json.dumps(models))
        yield provider, first["id"]


def test_choices_are_entries_and_survive(place, two_models):
    provider, first = two_models
    with call(place, "--tools", "", model=f"{provider}/{first}") as caller:
        caller.say("hi")
        assert caller.get("set_model", provider=provider, modelId="other")["id"] == "other"
        assert caller.ask("set_thinking_level", level="high") == {"success": True}
        caller.say("again")
        caller.close()
    entries = place.entries()
    chosen = [e.get("modelId") or e.get("thinkingLevel") for e in entries if e["type"].endswith("_change")]
    answered = [e["message"]["model"] for e in entries if e.get("message", {}).get("role") == "assistant"]
    assert (chosen[-2:], answered) == (["other", "high"], [first, "other"])
    again = place.run("-c", "-p", "once more", "--mode", "json", "--tools", "")
    (reply,) = [r["message"] for r in again.lines if r["type"] == "turn_end"]
    assert (reply["model"], reply["thinkingLevel"]) == ("other", "high")


def test_model_changes_between_two_turns(place, two_models):
    provider, first = two_models
    with call(place, "--tools", "bash", replies=[SLEEPS]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        caller.get("set_model", provider=provider, modelId=first)
        caller.read_until("agent_settled")
        replies = [m for m in caller.get("get_messages")["messages"] if m["role"] == "assistant"]
    assert [reply["provider"] for reply in replies] == ["scripted", provider]


def test_models_and_levels_go_round(place, two_models):
    provider, first = two_models
    with call(place, "--tools", "", "--thinking", "off", model=f"{provider}/{first}") as caller:
        turned = [caller.get("cycle_model")["model"]["id"] for _ in range(2)]
        levels = caller.get("get_available_thinking_levels")["levels"]
        thought = [caller.get("cycle_thinking_level")["level"] for _ in levels]
    assert (turned, thought) == (["other", first], [*levels[1:], "off"])


def test_enabled_models_are_the_round(place, two_models):
    provider, first = two_models
    (place.agent_dir / "settings.json").write_text(json.dumps({"enabledModels": [f"{provider}/*", "offline/rules"]}))
    with call(place, "--tools", "", model=f"{provider}/{first}") as caller:
        turned = [caller.get("cycle_model") for _ in range(3)]
    assert [turn["model"]["id"] for turn in turned] == ["other", "rules", first]
    assert {turn["isScoped"] for turn in turned} == {True}


def test_bash_is_told_and_remembered(place):
    with call(place, "--tools", "") as caller:
        command = "echo one; printf '\\033[31mtwo\\033[0m\\r\\n' >&2; exit 3"
        told = caller.get("bash", command=command)
        caller.get("bash", command="echo secret", excludeFromContext=True)
        caller.say("what was that?")
        messages = caller.get("get_messages")["messages"]
    assert told == {"output": "one\ntwo\n", "exitCode": 3, "cancelled": False, "truncated": False}
    updates = [(r["id"], r["delta"]) for r in caller.seen if r["type"] == "bash_execution_update"]
    assert ("".join(delta for id, delta in updates if id == "r1"), updates[-1]) == ("one\ntwo\n", ("r2", "secret\n"))
    noted = [m for m in messages if m["role"] == "bashExecution"]
    assert [(m["exitCode"], m.get("excludeFromContext")) for m in noted] == [(3, None), (0, True)]


def test_bash_beside_a_run_comes_after_it(place):
    with call(place, "--tools", "bash", replies=[SLEEPS, {"text": "Done."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        caller.get("bash", command="echo hi")
        caller.read_until("agent_settled")
        roles = [m["role"] for m in caller.get("get_messages")["messages"]]
    assert roles == ["system", "user", "assistant", "toolResult", "assistant", "bashExecution"]


def test_bash_can_be_aborted(place):
    with call(place) as caller:
        running = caller.send("bash", command="echo begun; sleep 47")
        caller.read_until("bash_execution_update")
        caller.get("abort_bash")
        done = next((r for r in caller.seen if r.get("id") == running and r["type"] == "response"), None)
        done = done or caller.read_until("response", id=running)
    assert done["data"] == {"output": "begun\n", "cancelled": True, "truncated": False}


def test_bash_is_aborted_before_it_begins(place):
    with call(place) as caller:
        caller.write('{"id": "b", "type": "bash", "command": "sleep 47"}\n{"id": "a", "type": "abort_bash"}')
        answers = {(record := caller.read_until("response"))["id"]: record for _ in range(2)}
    assert (answers["b"]["data"]["cancelled"], answers["a"]["success"]) == (True, True)


def test_long_output_is_kept_in_a_file(place):
    with call(place) as caller:
        told = caller.get("bash", command="seq 1 30000")
    assert (told["truncated"], told["output"].splitlines()[-1]) == (True, "30000")
    with open(told["fullOutputPath"]) as file:
        assert file.read() == "".join(f"{n}\n" for n in range(1, 30001))


def test_failed_reply_is_not_retried_when_told(place):
    failing = {"error": {"kind": "overloaded", "message": "too busy"}}
    with call(place, "--tools", "", replies=[failing]) as caller:
        caller.get("set_auto_retry", enabled=False)
        caller.say("hi")
        assert "auto_retry_start" not in caller.kinds


def test_retry_can_be_given_up(place):
    failing = {"error": {"kind": "overloaded", "message": "too busy"}}
    with call(place, "--tools", "", replies=[failing]) as caller:
        caller.get("prompt", message="hi")
        caller.read_until("auto_retry_start")
        caller.get("abort_retry")
        ended = [r for r in caller.seen if r["type"] == "auto_retry_end"] or [caller.read_until("auto_retry_end")]
        assert (ended[0]["success"], ended[0]["attempt"]) == (False, 1)


def test_compaction_gives_its_summary(place):
    replies = [{"text": "word " * 4000}, {"match": SUMMARY, "text": "It was about words."}]
    with call(place, "--tools", "", replies=replies) as caller:
        caller.say("tell me a lot")
        done = caller.get("compact", customInstructions="be brief")
        usage = caller.get("get_session_stats")["contextUsage"]
    assert "It was about words." in done["summary"]
    assert {"firstKeptEntryId", "tokensBefore", "estimatedTokensAfter", "usage", "details"} < set(done)
    assert (usage["tokens"], usage["percent"]) == (None, None)


def test_compaction_can_be_aborted(place):
    replies = [{"text": "word " * 4000}, {"match": SUMMARY, "text": "Too late.", "delay_ms": 20_000}]
    with call(place, "--tools", "", replies=replies) as caller:
        caller.say("tell me a lot")
        compacting = caller.send("compact")
        caller.read_until("compaction_start")
        refused = caller.ask("prompt", message="now")
        caller.get("abort")
        answer = next(r for r in caller.seen if r.get("id") == compacting)
    assert (refused["success"], answer["success"], answer["error"]) == (False, False, "Compaction cancelled")


def test_compaction_spares_what_works_beside_it(place):
    look = {"subagent_type": "Explore", "prompt": "look", "description": "a look"}
    replies = [
        {"match": SUMMARY, "text": "It was about words."},
        {"match": {"last_user": "^begin"}, "text": "word " * 4000, "calls": [{"name": "Agent", "arguments": look}]},
        {"match": {"last_user": "^begin"}, "text": "started"},
        {"match": {"last_user": "^look"}, "text": "the report", "delay_ms": 1500},
        {"match": {"last_user": "task-notification"}, "text": "Thank you"},
    ]
    with call(place, "--tools", "Agent", replies=replies) as caller:
        caller.say("begin")
        assert "It was about words." in caller.get("compact")["summary"]
        assert caller.read_until("subagents:completed")["result"] == "the report"
        caller.read_until("agent_settled")
        assert caller.get("get_last_assistant_text") == {"text": "Thank you"}


def test_skills_are_commands(place):
    folder = place.agent_dir / "skills" / "tidy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidy up\n---\n\nSweep first.\n")
    with call(place, "--tools", "read") as caller:
        (command,) = caller.get("get_commands")["commands"]
        caller.say("/skill:tidy the attic")
        (user,) = [m for m in caller.get("get_messages")["messages"] if m["role"] == "user"]
    assert (command["name"], command["source"], command["sourceInfo"]["scope"]) == ("skill:tidy", "skill", "user")
    text = user["content"][0]["text"]
    assert ("Sweep first." in text, text.endswith("the attic")) == (True, True)


def test_extension_command_is_handled(place):
    folder = place.agent_dir / "extensions"
    folder.mkdir()
    (folder / "greet.py").write_text(
        "def register(api):\n    api.command('greet', lambda text: f'hello {text}', 'Greets')\n"
    )
    with call(place) as caller:
        (command,) = caller.get("get_commands")["commands"]
        assert caller.get("prompt", message="/greet you") == {"disposition": "handled"}
        assert caller.ask("steer", message="/greet you")["success"] is False
        notice = next(r for r in caller.seen if r["type"] == "extension_ui_request")
    assert (command["name"], command["source"]) == ("greet", "extension")
    assert (notice["method"], notice["message"], notice["notifyType"]) == ("notify", "hello you", "info")


@pytest.mark.sample(3)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("busy", [False, True])
def test_signal_ends_it_in_good_order(place, number, status, busy):
    with call(place, "--tools", "bash", replies=[SLOW]) as caller:
        caller.get("get_state")
        if busy:
            caller.get("prompt", message="go")
            caller.read_until("tool_execution_start")
        begun = time.monotonic()
        assert caller.kill(number) == (status, "")
        assert time.monotonic() - begun < 1.5


def test_end_of_input_stops_a_run(place):
    with call(place, "--tools", "bash", replies=[SLOW]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        assert caller.close() == 0
    assert place.entries()[-1]["data"]["reason"] == "user"


def test_prompts_do_not_belong_on_the_command_line(place):
    done = place.run("--mode", "rpc", "hello", replies=[])
    assert (done.status, done.stdout, "standard input" in done.stderr) == (2, "", True)
