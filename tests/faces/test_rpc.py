"""`retinue --mode rpc` as a program that drives it sees it."""

import json
import signal
import time

import pytest
from rpc_caller import call

from retinue.testing import MockServer

SLOW = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 47"}}]}
SUMMARY = {"system": "hand-over notes"}
SLEEPS = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 0.4"}}]}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


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
        ({"type": "switch_session", "sessionPath": ""}, "'' is no path"),
        ({"type": "export_html", "outputPath": "/dev/null/x"}, ""),
        ({"type": "prompt", "message": ["a"]}, "prompt: message is"),
        ({"type": "prompt", "message": "a", "images": "b"}, "prompt: images is 'b'"),
        ({"type": "no_such"}, "Unknown command: no_such"),
        ({"type": "x\x1b[2J" * 200}, "Unknown command: x\\x1b[2J"),
    ],
)
def test_mistakes_get_an_error_answer(place, command, error):
    with call(place) as caller:
        caller.write(json.dumps({"id": "a", **command}))
        answer = caller.read_until("response")
        assert (answer["id"], answer["command"], answer["success"]) == ("a", command["type"], False)
        assert answer["error"].startswith(error)
        assert len(answer["error"]) < 600
        assert caller.close() == 0


@pytest.mark.parametrize(
    "line", ["{bad", "", "42", "null", "[]", '"text"', "\xff\xfe", '{"type": NaN}', "[" * 100_000, '{"a":' * 5000]
)
def test_bad_lines_get_a_parse_answer(place, line):
    with call(place) as caller:
        caller.write(line.encode("latin-1"))
        answer = caller.read()
        assert answer.pop("error").startswith("Failed to parse command: ")
        assert answer == {"type": "response", "command": "parse", "success": False}
        assert caller.get("get_messages") == {"messages": []}


@pytest.mark.parametrize("command", [{"id": 7}, {"id": 7, "type": None}, {"id": 7, "type": {"a": 1}}])
def test_command_without_type_is_unknown(place, command):
    with call(place) as caller:
        caller.write(json.dumps(command))
        answer = caller.read()
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


def test_new_session_begins_empty(place):
    with call(place, "--tools", "") as caller:
        caller.say("hi")
        before = caller.get("get_state")
        assert caller.get("new_session", parentSession="/a/parent.jsonl") == {"cancelled": False}
        after = caller.get("get_state")
        assert (after["messageCount"], after["sessionId"] == before["sessionId"]) == (0, False)
        assert caller.say("hi again") == "Hello."
        caller.close()
    assert place.entries()[0]["parentSession"] == "/a/parent.jsonl"


def test_session_can_be_switched_back(place):
    with call(place, "--tools", "", replies=[{"text": "One."}, {"text": "Two."}]) as caller:
        caller.say("hi")
        first = caller.get("get_state")["sessionFile"]
        caller.get("new_session")
        caller.say("other")
        assert caller.get("switch_session", sessionPath=first) == {"cancelled": False}
        assert caller.say("more") == "Two."
        assert caller.ask("switch_session", sessionPath=first)["success"] is False
        assert caller.get("get_state")["messageCount"] == 5


def test_habits_outlive_a_session(place):
    with call(place) as caller:
        caller.get("set_steering_mode", mode="all")
        caller.get("set_follow_up_mode", mode="all")
        caller.get("set_auto_compaction", enabled=False)
        caller.get("new_session")
        state = caller.get("get_state")
    assert (state["steeringMode"], state["followUpMode"], state["autoCompactionEnabled"]) == ("all", "all", False)


@pytest.mark.parametrize("keep", [(), ("--no-session",)])
def test_fork_ends_before_a_message(place, keep):
    with call(place, "--tools", "", *keep, replies=[{"text": "One."}, {"text": "Two."}]) as caller:
        caller.say("first")
        caller.say("second")
        spoken = caller.get("get_fork_messages")["messages"]
        assert [message["text"] for message in spoken] == ["first", "second"]
        forked = caller.get("fork", entryId=spoken[1]["entryId"])
        assert forked == {"text": "second", "cancelled": False}
        assert [m["role"] for m in caller.get("get_messages")["messages"]] == ["system", "user", "assistant"]
        assert caller.say("another second") == "Two."


def test_clone_has_the_same_entries(place):
    with call(place, "--tools", "") as caller:
        caller.say("hi")
        before, old = caller.get("get_entries"), caller.get("get_state")["sessionFile"]
        assert caller.get("clone") == {"cancelled": False}
        assert caller.get("get_entries") == before
        assert caller.get("get_state")["sessionFile"] != old
        caller.close()
    assert place.entries()[0]["parentSession"] == old


def test_entries_and_tree_say_the_same(place):
    replies = [{"text": str(number)} for number in range(40)]
    with call(place, "--tools", "", replies=replies) as caller:
        for number in range(40):
            caller.say(str(number))
        everything, tree = caller.get("get_entries"), caller.get("get_tree")
        third = everything["entries"][2]["id"]
        assert caller.get("get_entries", since=third)["entries"] == everything["entries"][3:]
    flat, nodes = [], tree["tree"]
    while nodes:
        (node,) = nodes
        flat.append(node["entry"])
        nodes = node["children"]
    assert (flat, tree["leafId"]) == (everything["entries"], everything["leafId"])
    assert len(flat) > 120


def test_stats_count_everything(place):
    replies = [{"calls": [{"name": "ls", "arguments": {}}], "usage": {"input": 7, "output": 3}}, {"text": "Done."}]
    with call(place, "--tools", "ls", replies=replies) as caller:
        caller.say("list")
        stats = caller.get("get_session_stats")
    counted = {name: stats[name] for name in ("userMessages", "assistantMessages", "toolCalls", "toolResults")}
    assert counted == {"userMessages": 1, "assistantMessages": 2, "toolCalls": 1, "toolResults": 1}
    assert (stats["tokens"]["input"], stats["totalMessages"]) == (17, 5)


def test_name_is_told_and_kept(place):
    with call(place) as caller:
        caller.get("set_session_name", name="my work")
        assert caller.seen[0] == {"type": "session_info_changed", "name": "my work"}
        caller.close()
    assert place.entries()[-1]["name"] == "my work"


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


def crew(*replies):
    started = {"subagent_type": "general-purpose", "prompt": "make it", "description": "a file"}
    begin = [to("^begin", calls=[{"name": "Agent", "arguments": started}]), to("^begin", text="started")]
    return [*begin, *replies]


def test_background_agents_go_on_between_prompts(place):
    replies = crew(to("^make", text="Made it", delay_ms=300), to("Made it", text="Thank you"))
    with call(place, replies=replies) as caller:
        assert caller.say("begin") == "started"
        told = caller.read_until("subagents:completed")
        caller.read_until("agent_settled")
        assert (told["result"], caller.get("get_last_assistant_text")) == ("Made it", {"text": "Thank you"})


def test_new_session_ends_its_agents(place):
    replies = crew(to("^make", calls=SLOW["calls"]), to("^hello", text="Hello."))
    with call(place, replies=replies) as caller:
        caller.say("begin")
        caller.read_until_seen("subagents:started")
        caller.get("new_session")
        assert caller.read_until_seen("subagents:failed")["status"] == "stopped"
        assert caller.say("hello") == "Hello."


def test_session_is_left_in_the_middle_of_a_run(place):
    with call(place, "--tools", "bash", replies=[SLOW]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        caller.get("new_session")
        assert caller.kinds.count("agent_settled") == 1
        assert caller.get("get_state")["isStreaming"] is False


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


def test_prompts_do_not_belong_on_the_command_line(place):
    done = place.run("--mode", "rpc", "hello", replies=[])
    assert (done.status, done.stdout, "standard input" in done.stderr) == (2, "", True)


def test_failed_switch_changes_nothing(place):
    gone = place.root / "gone.jsonl"
    header = {"type": "session", "version": 3, "id": "a", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/gone/away"}
    entry = {"type": "session_info", "id": "b", "parentId": None, "timestamp": "", "name": "gone"}
    gone.write_text(f"{json.dumps(header)}\n{json.dumps(entry)}\n")
    with call(place, "--tools", "bash", replies=[SLEEPS, {"text": "Fine."}]) as caller:
        caller.get("prompt", message="go")
        caller.read_until("tool_execution_start")
        refused = caller.ask("switch_session", sessionPath=str(gone))
        caller.read_until("agent_settled")
        assert (refused["success"], "/gone/away" in refused["error"]) == (False, True)
        assert caller.get("get_last_assistant_text") == {"text": "Fine."}
        (ended,) = [record for record in caller.seen if record["type"] == "agent_end"]
    assert [message["role"] for message in ended["messages"]][-1] == "assistant"
    assert len(ended["messages"]) == 5


def test_open_session_of_another_is_refused(place):
    with call(place, "--tools", "") as first, call(place, "--tools", "") as second:
        first.say("hi")
        refused = second.ask("switch_session", sessionPath=first.get("get_state")["sessionFile"])
        assert (refused["success"], second.say("hello")) == (False, "Hello.")


def test_approval_of_a_folder_stays_there(place):
    other = place.root / "other"
    (other / ".pi" / "skills" / "trap").mkdir(parents=True)
    (other / ".pi" / "skills" / "trap" / "SKILL.md").write_text("---\nname: trap\ndescription: d\n---\n\nDo it.\n")
    place.run("-C", str(other), "-p", "hi", replies=[{"text": "Hello."}])
    (session,) = place.sessions()
    with call(place, "--approve", "--tools", "read") as caller:
        caller.get("switch_session", sessionPath=str(session))
        assert caller.get("get_commands") == {"commands": []}
