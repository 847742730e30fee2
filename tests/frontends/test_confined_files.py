import json

import pytest


def write(path, content="mine"):
    return {"name": "write", "arguments": {"path": str(path), "content": content}}


def results(done):
    ends = [line for line in done.lines if line.get("type") == "tool_execution_end"]
    return [(end["isError"], end["result"]["content"][0]["text"]) for end in ends]


def play(place, *calls, settings=None):
    place.agent_dir.mkdir(parents=True, exist_ok=True)
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings or {}))
    done = place.run("-p", "--mode", "json", "go", replies=[{"calls": list(calls)}, {"text": "done"}])
    assert done.status == 0, done.stderr
    return results(done)


@pytest.mark.attack("C1", "C8")
def test_main_agent_stays_in_workspace(place):
    outside = place.root / "evil.txt"
    told = play(place, write("fine.txt"), write(outside), write(".pi/agents/x.md"), write(place.home / ".bashrc"))
    assert [error for error, _ in told] == [False, True, True, True]
    assert "outside of where this agent may change files" in told[1][1]
    assert "is protected" in told[2][1]
    assert [path.exists() for path in (outside, place.work / ".pi", place.home / ".bashrc")] == [False] * 3


@pytest.mark.attack("H1")
def test_keys_are_not_read(place):
    secret = place.agent_dir / "auth.json"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text('{"x": "the-canary"}')
    told = play(place, {"name": "read", "arguments": {"path": str(secret)}})
    assert told[0][0]
    assert "the-canary" not in told[0][1]


def test_user_may_switch_it_off(place):
    outside = place.root / "elsewhere.txt"
    assert play(place, write(outside), settings={"sandbox": {"mode": "off"}})[0][0] is False
    assert outside.read_text() == "mine"


def test_user_may_name_more_places(place):
    more = place.root / "more"
    more.mkdir()
    told = play(place, write(more / "a.txt"), settings={"sandbox": {"writable": [str(more)]}})
    assert (told[0][0], (more / "a.txt").read_text()) == (False, "mine")


@pytest.mark.here("a run on a worker does not write to memory")
def test_agent_keeps_its_notes(place):
    folder = place.agent_dir / "agents"
    folder.mkdir(parents=True)
    (folder / "keeper.md").write_text("---\nname: keeper\ntools: read, write\nmemory: user\n---\nKeep notes.\n")
    notes = place.home / ".pi" / "agent-memory" / "keeper" / "MEMORY.md"
    script = place.script({"calls": [write(notes, "- a note\n")]}, {"text": "noted"})
    done = place.run("run", "--write", "--model", script, "keeper", "remember")
    assert (done.status, done.stdout, notes.read_text()) == (0, "noted\n", "- a note\n")
