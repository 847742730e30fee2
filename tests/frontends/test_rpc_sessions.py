"""Going over to other sessions, and what a session holds, as a program that drives `retinue --mode rpc` sees it."""

import json

import pytest

from tests.frontends.rpc_caller import call

SLOW = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 47"}}]}
SLEEPS = {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "sleep 0.4"}}]}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


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


def test_failed_switch_changes_nothing(place):
    gone = place.agent_dir / "sessions" / "gone.jsonl"
    gone.parent.mkdir()
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
