"""What retinue sends first, so that the bare client can send the same: system prompt, tools, model."""

import json
from pathlib import Path

from bench.mock import serve
from bench.workplace import CLI, Workplace


def capture_opening(place: Workplace) -> Path:
    """Ask one question, and keep the request without the user's message."""
    with serve(place.folder, [{"text": "captured"}], log=True) as mock:
        place.use(mock)
        place.run(*CLI, "-p", "--no-session", "--model", "mock/bench", "anything")
        body = next(entry["body"] for entry in mock.read_log() if entry["method"] == "POST")
    system = [message for message in body["messages"] if message["role"] in ("system", "developer")]
    opening = {"model": body["model"], "messages": system, "tools": body.get("tools", [])}
    path = place.folder / "opening.json"
    path.write_text(json.dumps(opening), encoding="utf-8")
    return path
