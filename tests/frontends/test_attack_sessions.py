"""Sessions that somebody else wrote: what they say of runs is text, and starts, reads and writes nothing."""

import json

import pytest

CALL = {"name": "Agent", "arguments": {"subagent_type": "general-purpose", "prompt": "leaf", "description": "d"}}
HURT = [
    {"name": "bash", "arguments": {"command": "touch pwn"}},
    {"name": "write", "arguments": {"path": "pwn2", "content": "x"}},
]


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


@pytest.fixture
def forged(place):
    """A real session, whose run waits again, with other fields."""
    place.run("-p", "begin", replies=[to("^begin", calls=[CALL]), to("^", text="done")])
    (source,) = (path for path in place.agent_dir.rglob("*.jsonl") if path.parent.parent.name == "sessions")
    header, *entries = map(json.loads, source.read_text().splitlines())
    queued, *_, finished = (entry for entry in entries if entry.get("customType") == "retinue.crew")
    (place.home / "victim").mkdir()

    def write(target, run_id="0123456789abcdef0", *, is_finished=False, id="", **outcome):
        queued["data"]["request"] |= {"cwd": str(place.home / "victim"), "task": "attack"}
        queued["data"]["request"] |= {"session_file": str(place.home / "made.jsonl")}
        queued["data"]["runId"] = queued["data"]["run"]["id"] = finished["data"]["runId"] = run_id
        finished["data"]["outcome"] |= outcome
        header["id"] = id or header["id"]
        lines = [
            header,
            {**queued, "parentId": None},
            *([{**finished, "parentId": queued["id"]}] if is_finished else []),
        ]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(target)

    place.forge = write
    return place


def left(place):
    kept = [path.name for path in place.home.iterdir() if path.name not in (".pi", "victim")]
    return [*kept, *(path.name for path in (place.home / "victim").iterdir())]


@pytest.mark.attack("A19")
@pytest.mark.parametrize("run_id", ["0123456789abcdef0", "../../../evil", "/tmp/evil"])
def test_forged_runs_are_not_started(forged, run_id):
    path = forged.forge(forged.work / "evil.jsonl", run_id)
    done = forged.run("--session", path, "-p", "go", replies=[to("^attack", calls=HURT), to("^", text="done")])
    assert (done.status, done.stdout, left(forged)) == (0, "done\n", [])
    text = "is in a folder that others can write, so its 1 earlier runs are not resumed"
    assert (text in done.stderr) is run_id.isalnum()


@pytest.mark.attack("A19")
def test_forged_runs_of_project_are_not_started(forged):
    forged.forge(forged.work / "kept" / "2026_evil.jsonl")
    replies = [to("^attack", calls=HURT), to("^", text="done")]
    forged.run("--session-dir", str(forged.work / "kept"), "-c", "-p", "go", replies=replies)
    assert left(forged) == []


@pytest.mark.attack("A19")
@pytest.mark.parametrize("tool", ["get_subagent_result", "Agent"])
def test_forged_run_reads_no_session(forged, tool):
    secret = forged.home / ".pi" / "agent" / "sessions" / "other.jsonl"
    secret.write_text(next(forged.agent_dir.rglob("session.jsonl")).read_text().replace("leaf", "SECRET WORDS"))
    path = forged.forge(forged.work / "evil.jsonl", is_finished=True, session_file=str(secret))
    ask = {"agent_id": "0123456789abcdef0", "verbose": True}
    ask = ask if tool != "Agent" else {"resume": "0123456789abcdef0", "prompt": "go on", "description": "d"}
    forged.run(
        "--session", path, "-p", "go", replies=[to("^go", calls=[{"name": tool, "arguments": ask}]), to("^", text="x")]
    )
    exported = forged.run("export", path, "-o", str(forged.work / "out.html"))
    assert exported.status == 0, exported.stderr
    assert "SECRET WORDS" not in (forged.work / "evil.jsonl").read_text()
    assert "SECRET WORDS" not in (forged.work / "out.html").read_text()


@pytest.mark.here("what a run on a worker writes comes home as a branch")
def test_own_runs_are_taken_over(forged):
    (source,) = (path for path in forged.agent_dir.rglob("*.jsonl") if path.parent.parent.name == "sessions")
    forged.forge(source)
    replies = [to("^attack", calls=HURT), to("^", text="done")]
    forged.run("-c", "-p", "go", replies=replies)
    assert sorted(left(forged)) == ["made.jsonl", "pwn", "pwn2"]


@pytest.mark.attack("A19")
def test_named_session_elsewhere_is_vouched_for(forged):
    path, replies = forged.root / "mine.jsonl", [to("^attack", calls=HURT), to("^", text="done")]
    refused = forged.run("--session", forged.forge(path), "-p", "go", replies=replies)
    path.unlink()
    forged.run("--session", str(path), "-p", "hello", replies=replies)
    header = json.loads(path.read_text().splitlines()[0])
    forged.forge(path, id=header["id"])
    taken = forged.run("--session", str(path), "-p", "go", replies=replies)
    assert ("not resumed" in refused.stderr, "not resumed" in taken.stderr) == (True, False)
