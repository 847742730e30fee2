"""Reads what scripts/record_pi.py recorded."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data" / "pi"


def load_lines(name: str) -> list[dict[str, Any]]:
    """The records of one file."""
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def load_stream(scenario: str) -> list[dict[str, Any]]:
    """What pi printed, normalised."""
    return load_lines(f"{scenario}.stream.jsonl")


def load_next(scenario: str) -> list[dict[str, Any]]:
    """The conversation pi sends when it goes on with its own session."""
    return load_lines(f"{scenario}.next.jsonl")


def put_session(scenario: str, cwd: Path) -> Path:
    """Copy a session that pi wrote to where a program will look for it."""
    text = (DATA / f"{scenario}.session.jsonl").read_text()
    target = cwd / "session.jsonl"
    target.write_text(text.replace("/CWD", json.dumps(str(cwd))[1:-1]))
    return target


def load_messages(session: Path) -> list[dict[str, Any]]:
    """All messages of a session file, in the order they were written."""
    entries = [json.loads(line) for line in session.read_text().splitlines()]
    return [entry["message"] for entry in entries if entry["type"] == "message"]
