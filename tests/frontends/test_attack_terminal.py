"""Attacks through text: sixty hostile strings in every place where the plain command shows something, seen by a pty."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from retinue.core.terminal import escape_text
from retinue.testing import process

SEQUENCES = (
    *("\x1b[31m", "\x1b[2J", "\x1b[H", "\x1b[?1049h", "\x1b[?1000h", "\x1b[201~", "\x1b[6n", "\x1b[c", "\x1b[>c"),
    *("\x1b[5i", "\x1b[20t", "\x1b]0;title\x07", "\x1b]2;title\x1b\\", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\"),
    *(
        "\x1b]52;c;ZXZpbA==\x07",
        "\x1b]7501;x\x07",
        "\x1b]133;A\x07",
        "\x1b]1337;File=x\x07",
        "\x1bPq#0~\x1b\\",
        "\x1b_G\x1b\\",
    ),
    *("\x1b^pm\x1b\\", "\x1bXsos\x1b\\", "\x1bc", "\x1b7", "\x1b8", "\x1bD", "\x1bM", "\x1b#8", "\x1b(0", "\x1b%G"),
    *("\x9b31m", "\x9d0;t\x9c", "\x90q\x9c", "\x84", "\x85", "\x8d", "\x8e", "\x98x\x9c", "\x9e", "\x9f"),
    *("\x07", "\x08\x08\x08", "safe\roverwritten", "\x0b", "\x0c", "\x0e", "\x0f", "\x11", "\x13", "\x7f", "\x00"),
    *(
        "\u202egnp.exe",
        "\u2066x\u2069",
        "\u200b",
        "\u2060",
        "\ufeff",
        "\u061c",
        "\U000e0041\U000e007f",
        "\u2028",
        "\u2029",
    ),
    "e" + "\u0301" * 500,
)
TEXT = " ".join(f"<{number}{sequence}>" for number, sequence in enumerate(SEQUENCES))
# What the progress line is painted with.
ALLOWED = re.compile(rb"\r\x1b\[K|\x1b\[[0-9;]*m")
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
    "|\r(?!\r?\n)|\u0301{9}"
)


def show(place, *arguments, env=None):
    """What a terminal gets of a command: standard output and standard error."""
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1", "TERM": "xterm"}
    environment |= {"PI_CODING_AGENT_DIR": str(place.agent_dir), **(env or {})}
    command = [sys.executable, "-m", "retinue", *arguments]
    program = process.start(
        command, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, cwd=place.work, env=environment
    )
    os.close(follower)
    shown, deadline = b"", time.monotonic() + 30
    with program:
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(leader)
    return ALLOWED.sub(b"", shown).decode("utf-8", "replace")


def find_unsafe(shown):
    return sorted({ascii(found[0]) for found in FORBIDDEN.finditer(shown)})


def put_agents(place):
    folder = place.agent_dir / "agents"
    folder.mkdir(exist_ok=True)
    text = json.dumps(TEXT)
    (folder / "odd.md").write_text(
        f"---\nname: odd\ndescription: {text}\nmodel: {text}\ntools: [{text}]\n---\n{TEXT}\n"
    )
    for number, sequence in enumerate(SEQUENCES):
        name = f"n{number}{sequence}".replace("/", "").replace("\0", "")[:60]
        (folder / f"{name}.md").write_text("---\ndescription: d\n---\nx\n", errors="surrogatepass")


def put_models(place):
    entry = {"baseUrl": "http://127.0.0.1:9", "api": "openai-completions", "apiKey": "k"}
    entry["models"] = [{"id": "m" + TEXT, "name": TEXT}]
    (place.agent_dir / "models.json").write_text(json.dumps({"providers": {"odd": entry, TEXT: entry}}))


def put_settings(place):
    (place.agent_dir / "settings.json").write_text(json.dumps({TEXT: 1, "defaultModel": TEXT, "steeringMode": TEXT}))
    (place.agent_dir / "subagents.json").write_text(json.dumps({TEXT: 1, "runner": TEXT, "denyTools": {TEXT: 1}}))
    (place.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {TEXT: {"command": TEXT}}}))


@pytest.mark.attack("H5", "H6", "SEC-9")
@pytest.mark.parametrize(
    "words", (("agents",), ("agents", "show", "odd"), ("models",), ("doctor",), ("sessions",), ("why", "odd", "bash"))
)
def test_listings_show_nothing_raw(place, words, measure):
    place.run("-p", TEXT.replace("\0", ""), replies=[{"text": TEXT}])
    put_agents(place)
    put_models(place)
    put_settings(place)
    shown = show(place, *words)
    measure("SEC-9", " ".join(words), unsafe=len(find_unsafe(shown)), strings=len(SEQUENCES), places=1)
    assert (find_unsafe(shown), len(shown) > 20) == ([], True)


@pytest.mark.attack("H5", "H6", "SEC-9")
@pytest.mark.parametrize("where", ("answer", "tool", "error", "agent", "file"))
def test_runs_show_nothing_raw(place, where, measure):
    call = {"name": "bash", "arguments": {"command": f"echo {TEXT!r}", "description": TEXT}}
    replies = {
        "answer": [{"text": TEXT}],
        "tool": [{"calls": [call]}, {"calls": [{"name": TEXT, "arguments": {}}]}, {"text": "ok"}],
        "error": [{"error": {"message": TEXT, "status": 400, "retryable": False}}],
        "agent": [{"text": TEXT}],
        "file": [{"calls": [{"name": "read", "arguments": {"path": TEXT}}]}, {"text": "ok"}],
    }[where]
    model = place.script(*replies)
    put_agents(place)
    words = ("run", "odd", "go") if where == "agent" else ("-p", "go")
    if where == "agent":
        (place.agent_dir / "agents" / "odd.md").write_text("---\nname: odd\ndescription: d\n---\nx\n")
    shown = show(place, "--model", model, *words)
    measure("SEC-9", where, unsafe=len(find_unsafe(shown)), strings=len(SEQUENCES), places=1)
    assert (find_unsafe(shown), len(shown) > 2) == ([], True)


@pytest.mark.sample(5)
@pytest.mark.attack("H5", "H6", "SEC-9")
@pytest.mark.parametrize(
    "words",
    (
        ("--" + SEQUENCES[0] + "x",),
        ("-p", "go", "--model", TEXT.replace("\0", "")),
        ("-p", "@" + SEQUENCES[11] + "\u202e"),
        ("run", TEXT.replace("\0", "")[:3000], "go"),
        ("-C", TEXT.replace("\0", "")[:200], "agents"),
        ("trust", TEXT.replace("\0", "")[:200]),
        ("--session", SEQUENCES[12], "-p", "x"),
        ("why", SEQUENCES[13], SEQUENCES[14]),
        ("export", SEQUENCES[15]),
        ("schedules", "cancel", SEQUENCES[16]),
        ("--tools", SEQUENCES[17], "-p", "x"),
    ),
    ids=lambda words: words[0][:9].strip("-") if words[0].isprintable() else "flag",
)
def test_mistakes_show_nothing_raw(place, words, measure):
    shown = show(place, *words)
    measure("SEC-9", ascii(words[:2])[:60], unsafe=len(find_unsafe(shown)), places=1)
    assert (find_unsafe(shown), len(shown) > 10) == ([], True)


@pytest.mark.attack("H5", "SEC-9", "A5")
def test_folder_names_show_nothing_raw(place):
    odd = place.work / f"x{SEQUENCES[0]}\u202e\r\x07"
    (odd / ".pi" / "agents").mkdir(parents=True)
    (odd / ".pi" / "subagent-schedules").mkdir()
    (odd / ".pi" / "subagent-schedules" / "s.json").write_text(json.dumps({"version": 1, "jobs": [{"id": TEXT}]}))
    place.work = odd
    shown = "".join(show(place, *words) for words in (("trust",), ("trust", "--yes"), ("agents",), ("schedules",)))
    assert (find_unsafe(shown), len(shown) > 20) == ([], True)


@pytest.mark.attack("H7")
def test_json_lines_stay_lines(place):
    hostile = TEXT + "\n\r\n\u2028\u2029\x85" + json.dumps({"type": "agent_end"}) + "\n"
    (place.work / "note.txt").write_bytes(hostile.encode())
    call = {"name": "read", "arguments": {"path": "note.txt"}}
    done = place.run("--mode", "json", "-p", hostile.replace("\0", ""), replies=[{"calls": [call]}, {"text": hostile}])
    kinds = [record["type"] for record in done.lines]
    assert (done.status, done.stdout.isascii(), FORBIDDEN.search(done.stdout)) == (0, True, None)
    assert (kinds.count("agent_end"), len(done.stdout.splitlines())) == (1, len(kinds))


@pytest.mark.attack("H7")
@pytest.mark.parametrize(
    "words", (("agents", "--json"), ("models", "--json"), ("sessions", "--json"), ("doctor", "--json"))
)
def test_json_listings_are_plain(place, words):
    place.run("-p", TEXT.replace("\0", ""), replies=[{"text": TEXT}])
    put_agents(place)
    put_models(place)
    done = place.run(*words)
    assert (isinstance(json.loads(done.stdout), dict), FORBIDDEN.search(done.stdout)) == (True, None)


@pytest.mark.attack("H6")
def test_floods_are_bounded():
    shown = escape_text("e" + "\u0301" * 10_000 + "x" * 10)
    assert (len(shown), escape_text("é" + "👩\u200d👩"), escape_text("می\u200cخواهم")) == (
        15,
        "é" + "👩\u200d👩",
        "می\u200cخواهم",
    )
