"""What others read of us, as it was stored once: a change of structure must not change it.

Ids, times, paths, figures of the machine and the words of descriptions are left out. `GOLDEN=renew` stores it anew,
which is right only where a format is meant to change.
"""

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import MockServer
from tests.frontends.rpc_caller import call

TOP = Path(__file__).parents[2]
STORED = TOP / "tests" / "data" / "golden"
CHANGING = {
    r"/[^\s\"']*/retinue/definitions/": "<package>/definitions/",
    r"/[^\s\"']*/(home|work|script.json)\b": r"<\1>",
    r"--[\w.-]+-work--": "<slug>",
    r"(?<![0-9a-f])(?:[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,32}|[0-9a-f]{8})(?![0-9a-f])": "<id>",
    r"\d{4}-\d\d-\d\dT[\d:.-]+Z?": "<time>",
    r"_ms>\d+<": "_ms>0<",
}
WORDS = (
    "description",
    "prompt",
    "error",
    "text",
    "help",
    "hint",
    "note",
    "title",
    "reason",
    "message",
    "remedy",
    "detail",
)
FIGURES = re.compile(r"(?i)(_ms|_s|ms|usd|cost|tokens|bytes|percent|window|timestamp|at|input|output|total)$")
AGENT = {"subagent_type": "helper", "description": "look at it", "prompt": "Look at it."}
REPLIES = [
    {
        "match": {"last_user": "Look at it."},
        "calls": [{"name": "read", "arguments": {"path": "a.txt"}}],
        "delay_ms": 500,
    },
    {"match": {"last_user": "Look at it."}, "text": "It is a."},
    {"text": "First.", "calls": [{"name": "Agent", "arguments": AGENT}]},
    {"calls": [{"name": "bash", "arguments": {"command": "exit 3"}}]},
    {"text": "Waiting."},
    {"text": "Done."},
]


@pytest.fixture
def world(place):
    (place.work / "a.txt").write_text("a\n")
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "helper.md").write_text(
        "---\nname: helper\ndescription: d\ntools: read\n---\nHelp.\n"
    )
    (place.agent_dir / "subagents.json").write_text('{"surfaces": ["fleet", "subagent", "dispatch"]}')
    return place


def level(value: Any, name: str = "") -> Any:
    """A value without what differs from run to run, and without words that may be put better."""
    match value:
        case dict():
            # What confines commands differs from machine to machine.
            return {level(key): "…" if key == "sandbox" else level(each, key) for key, each in value.items()}
        case list() | tuple():
            return [level(each, name) for each in value]
        case str() if name == "description" or len(value) > (40 if name in WORDS else 150):
            return "…"
        case str():
            for pattern, mark in CHANGING.items():
                value = re.sub(pattern, mark, value)
            return value
        case bool() | None:
            return value
        case int() | float():
            return 0 if isinstance(value, float) or FIGURES.search(name) or value > 10_000 else value
    return value


def compare(name: str, value: Any) -> None:
    """What was stored, line by line."""
    lines = value if isinstance(value, list) else [value]
    text = "".join(json.dumps(level(each), ensure_ascii=False) + "\n" for each in lines)
    path = STORED / f"{name}.json"
    if os.environ.get("GOLDEN") == "renew":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} has changed"


def test_events_and_sessions(world):
    done = world.run("--mode", "json", "-p", "Begin.", replies=REPLIES)
    assert done.status == 0, done.stderr
    compare("events", [line for line in done.lines if line["type"] != "message_update"])
    compare("session", world.entries())
    (child,) = world.agent_dir.glob("sessions/*/*/*/session.jsonl")
    compare("child-session", [json.loads(line) for line in child.read_text().splitlines()])


def test_tool_schemas(world):
    with MockServer.in_thread([{"text": "Done."}]) as server:
        (world.agent_dir / "models.json").write_text(json.dumps(server.models_json()))
        world.run("-p", "--model", "mock/mock-1", "Begin.")
        compare("tools", [tool["function"] for tool in server.requests[0].json["tools"]])


def test_rpc_answers(world):
    kinds = ("get_state", "get_messages", "get_session_stats", "get_commands", "get_last_assistant_text", "nothing")
    with call(world, replies=[{"text": "Done."}]) as caller:
        caller.say("Begin.")
        compare("rpc", [{kind: caller.ask(kind)} for kind in kinds])


def test_json_of_commands(world):
    world.run("-p", "Begin.", replies=[{"text": "Done."}])
    lists = [("agents", "--json"), ("agents", "show", "helper", "--json"), ("sessions", "--json")]
    found = {" ".join(words): json.loads(world.run(*words).stdout) for words in lists}
    done = world.run("run", "--json", "helper", "Look at it.", "--model", world.script(*REPLIES))
    compare("commands", {**found, "run --json": json.loads(done.stdout)})


def test_database_tables(world):
    (world.agent_dir / "subagents.json").write_text('{"runner": "durable"}')
    world.run("-p", "Begin.", replies=REPLIES)
    (path,) = (each for each in world.agent_dir.rglob("*.db") if b"CREATE TABLE pieces" in each.read_bytes())
    with sqlite3.connect(path) as database:
        local = [
            sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        ]
    # Those of a shared database stand in one file, wherever that is.
    texts = [
        path.read_text()
        for path in (TOP / "src").rglob("*.py")
        if "CREATE TABLE IF NOT EXISTS retinue." in path.read_text()
    ]
    shared = re.findall(r"^CREATE [^;]*;|^ALTER [^;]*;", "".join(texts), re.MULTILINE)
    compare("tables", [" ".join(each.split()) for each in (*local, *shared)])


def test_settings():
    rows = [line.split(" | ")[:3] for line in (TOP / "docs/reference/settings.md").read_text().splitlines()]
    compare("settings", [" | ".join(row) for row in rows if row[0].startswith("| `") and len(row) == 3])
