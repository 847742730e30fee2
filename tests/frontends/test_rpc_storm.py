"""Commands in any order, at any time: each is answered once, and the process ends as it should."""

import json
import random

import pytest

from tests.frontends.rpc_caller import call

REPLIES = [
    {"match": {"system": "hand-over notes"}, "text": "Notes.", "delay_ms": 30},
    {"match": {"last_user": "work"}, "calls": [{"name": "bash", "arguments": {"command": "sleep 0.05"}}]},
    {"match": {"last_user": "work"}, "text": "word " * 300, "chunk_ms": 1, "chunk_chars": 100},
    {"match": {"last_user": "crew"}, "calls": [{"name": "Agent", "arguments": {"subagent_type": "Explore"}}]},
    {"match": {"last_user": "crew"}, "text": "Sent."},
    {"match": {"last_user": "."}, "text": "Yes.", "delay_ms": 5},
]
REPLIES[3]["calls"][0]["arguments"] |= {"prompt": "look", "description": "looking"}
COMMANDS = [
    {"type": "prompt", "message": "work"},
    {"type": "prompt", "message": "crew"},
    {"type": "prompt", "message": "work", "streamingBehavior": "steer"},
    {"type": "prompt", "message": "hello", "streamingBehavior": "followUp"},
    {"type": "steer", "message": "left"},
    {"type": "follow_up", "message": "right"},
    {"type": "abort"},
    {"type": "clear_queue"},
    {"type": "compact"},
    {"type": "bash", "command": "echo hi; sleep 0.05"},
    {"type": "abort_bash"},
    {"type": "abort_retry"},
    {"type": "new_session"},
    {"type": "clone"},
    {"type": "cycle_thinking_level"},
    {"type": "set_session_name", "name": "storm"},
    {"type": "set_steering_mode", "mode": "all"},
    *({"type": f"get_{what}"} for what in ("state", "messages", "tree", "entries", "session_stats", "fork_messages")),
    {"type": "fork", "entryId": "nothing"},
    {"type": "nonsense"},
]


@pytest.mark.parametrize("seed", range(4))
def test_every_command_is_answered_once(place, seed):
    chance = random.Random(seed)
    sent = []
    with call(place, "--tools", "bash,Agent", replies=REPLIES) as caller:
        for number in range(60):
            command = chance.choice(COMMANDS)
            caller.write(json.dumps({"id": number, **command}))
            sent.append((number, command["type"]))
            if chance.random() < 0.3:
                caller.get("get_commands")
        caller.get("abort_bash")
        caller.get("abort")
        answered = [
            (r["id"], r["command"]) for r in caller.seen if r["type"] == "response" and isinstance(r["id"], int)
        ]
        missing = sorted(set(sent) - set(answered))
        while len(answered) < len(sent) and missing:
            record = caller.read_until("response")
            answered.append((record["id"], record["command"]))
        caller.process.stdin.close()
        caller.process.stdin = None
        _, errors = caller.process.communicate(timeout=8)
    # A session that is left or copied in the middle of a call lacks its result, which is told.
    told = [line for line in errors.splitlines() if not line.endswith(b"the model sees it as interrupted")]
    assert (sorted(answered), caller.process.returncode, told) == (sent, 0, []), f"seed {seed}"
    internal = [r["error"] for r in caller.seen if "internal error" in str(r.get("error", r.get("message", "")))]
    assert internal == []
