import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.core.messages import AssistantMessage, TextContent, ToolCall, Usage, UserMessage
from retinue.sessions.log import Session
from retinue.sessions.search import list_directories, list_sessions
from retinue.sessions.tree import MAX_DESCRIPTORS, SessionTree
from retinue.testing.clock import FakeClock

STAMP = "2026-01-01T00:00:00.000Z"
HEADER = {"type": "session", "version": 3, "id": "big", "timestamp": STAMP, "cwd": "/"}
USAGE = {"input": 9, "output": 9, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 18, "cost": {"total": 0}}

# Processor time: other tests may be running beside this one.
OPEN = """
import json, sys, time
from retinue.core.messages import UserMessage
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
before = rss()
start = time.process_time()
session = Session.open(sys.argv[1], clock=FakeClock(), new_id=lambda: "n")
opened = time.process_time() - start
messages = len(session.context().messages)
session.append_message(UserMessage("go on", 1), sync=True)
total = time.process_time() - start
grown = rss() - before
print(json.dumps({"opened": opened, "total": total, "messages": messages, "entries": len(session), "grown": grown}))
"""


def make_lines(count: int, compaction_at: int | None) -> list[str]:
    call = {"type": "toolCall", "id": "CALL", "name": "read", "arguments": {"path": "a" * 40}}
    answer = {"role": "assistant", "content": [call], "api": "a", "provider": "p", "model": "m"}
    result = {"role": "toolResult", "toolCallId": "CALL", "toolName": "read", "isError": False}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "question " * 30, "timestamp": 1},
        {**answer, "usage": USAGE, "stopReason": "toolUse", "timestamp": 1},
        {**result, "content": [{"type": "text", "text": "line " * 60}], "timestamp": 1},
    ]
    bodies = [json.dumps(message, separators=(",", ":")) for message in messages]
    lines = [json.dumps(HEADER, separators=(",", ":"))]
    for number in range(count):
        parent = f'"{number - 1:08x}"' if number else "null"
        kind, body = "message", f'"message":{bodies[number % 3].replace("CALL", f"c{number // 3}")}'
        if number == compaction_at:
            kept = f"{number - 10:08x}"
            kind, body = "compaction", f'"summary":"so far","firstKeptEntryId":"{kept}","tokensBefore":9'
        lines.append(f'{{"type":"{kind}","id":"{number:08x}","parentId":{parent},"timestamp":"{STAMP}",{body}}}')
    return lines


def measure(path: Path) -> dict[str, float]:
    command = [sys.executable, "-c", OPEN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("compaction_at", "messages"), [(None, 100_000), (99_900, 110)])
def test_hundred_thousand_lines_open_quickly(tmp_path: Path, compaction_at: int | None, messages: int) -> None:
    path = tmp_path / "big.jsonl"
    path.write_text("\n".join(make_lines(100_000, compaction_at)) + "\n")
    figures = measure(path)
    assert (figures["entries"], figures["messages"]) == (100_001, messages)
    assert figures["total"] <= 2
    assert figures["grown"] <= (400 if compaction_at is None else 120)


def test_thousand_children_share_descriptors(tmp_path: Path) -> None:
    main = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "main")
    main.append_message(UserMessage("go", 1))
    tree = main.tree
    assert tree is not None
    before = len(os.listdir("/proc/self/fd"))
    children = [
        Session.create(
            cwd="/", directory=None, path=tree.child_path(f"r{n}"), clock=FakeClock(), new_id=lambda: "c", tree=tree
        )
        for n in range(1000)
    ]
    for round_number in range(2):
        for child in children:
            child.append_message(UserMessage(f"round {round_number}", 1))
            child.append_custom("round", round_number)
    assert len(os.listdir("/proc/self/fd")) - before <= MAX_DESCRIPTORS
    assert {len(child.context().messages) for child in children} == {2}
    for child in children:
        child.close()
    main.close()
    assert len(list_sessions([tmp_path], children=True)) == 1001
    assert len(list_sessions([tmp_path])) == 1


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    tree = SessionTree(max_descriptors=1)
    make = {"cwd": "/", "directory": None, "clock": FakeClock(), "new_id": lambda: "c", "tree": tree}
    sessions = [Session.create(path=tmp_path / f"{n}.jsonl", **make) for n in range(3)]  # type: ignore[arg-type]
    for number in range(6):
        sessions[number % 3].append_message(UserMessage(str(number), 1))
    assert [[m.content for m in s.context().messages] for s in sessions] == [  # type: ignore[union-attr]
        ["0", "3"],
        ["1", "4"],
        ["2", "5"],
    ]
    tree.close()


def test_ten_thousand_sessions_list_quickly(tmp_path: Path) -> None:
    body = "\n".join(make_lines(3, None)[1:])
    for number in range(10_000):
        folder = tmp_path / "sessions" / f"--p{number % 20}--"
        folder.mkdir(parents=True, exist_ok=True)
        header = json.dumps(HEADER | {"id": f"s{number}"}, separators=(",", ":"))
        (folder / f"2026_s{number}.jsonl").write_text(f"{header}\n{body}\n")
    cache = tmp_path / "retinue" / "sessions.json"
    list_sessions(list_directories(tmp_path), cache=cache)
    start = time.process_time()
    infos = list_sessions(list_directories(tmp_path), cache=cache)
    taken = time.process_time() - start
    assert (len(infos), {info.messages for info in infos}) == (10_000, {3})
    assert taken <= 0.5


def test_appending_is_cheap(tmp_path: Path) -> None:
    session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "s")
    content = [TextContent("a few words " * 20), ToolCall("c1", "read", {"path": "src/a.py"})]
    message = AssistantMessage(content, "api", "p", "m", Usage(input=9), "toolUse", 1)  # type: ignore[arg-type]
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            session.append_message(message)
        best = min(best, (time.process_time() - start) / 1000)
    session.close()
    assert best <= 40e-6
