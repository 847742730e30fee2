import json
import os

import pytest

from retinue.testing import make_repo

WORKER = "---\nname: worker\ndescription: d\ntools: read, write, bash\n{more}---\n\nWork.\n"
WRITE = {"calls": [{"name": "write", "arguments": {"path": "done.txt", "content": "good\n"}}]}
CHECK = "grep -q good done.txt"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


@pytest.fixture
def prepared(place):
    os.rmdir(place.work)
    make_repo(place.work, {"a.txt": "one\n"})
    (place.agent_dir / "agents").mkdir(parents=True)
    (place.agent_dir / "agents" / "worker.md").write_text(WORKER.format(more=""))
    return place


def run_agent(place, *words, replies):
    return place.run("run", "--model", place.script(*replies), "worker", "do it", *words)


def test_run_takes_commands(prepared):
    done = run_agent(
        prepared, "--write", "--verify", "true", "--verify", CHECK, replies=[WRITE, {"text": "It is done."}]
    )
    assert (done.status, done.stdout) == (0, "It is done.\n")
    assert f"Verified by the host: `true`, `{CHECK}` succeeded." in done.stderr and "done.txt (created)" in done.stderr
    failed = run_agent(prepared, "--verify", "echo oops; false", replies=[{"text": "Done."}] * 3)
    assert (failed.status, failed.stdout) == (1, "")
    assert "[SUBAGENT_VERIFICATION_FAILED] `echo oops; false`" in failed.stderr and "Done." in failed.stderr
    shown = run_agent(prepared, "--verify", "false", "--json", replies=[{"text": "Done."}] * 3)
    details = json.loads(shown.stdout)["details"]
    assert (shown.status, details["error"]["code"]) == (1, "SUBAGENT_VERIFICATION_FAILED")
    assert (details["results"][0]["verification"], details["results"][0]["exitCode"]) == ("failed", 1)
    bad = run_agent(prepared, "--verify", " ", replies=[{"text": "Done."}])
    assert (bad.status, "verify" in bad.stderr) == (2, True)


def test_main_agent_with_a_file_is_verified(prepared):
    (prepared.agent_dir / "agents" / "worker.md").write_text(WORKER.format(more=f"verify: {CHECK}\n"))
    done = prepared.run("-p", "--agent", "worker", "do it", replies=[WRITE, {"text": "It is done."}])
    assert (done.status, done.stdout) == (0, "It is done.\n")
    (prepared.work / "done.txt").unlink()
    failed = prepared.run("-p", "--agent", "worker", "do it", replies=[{"text": "Done."}] * 3)
    assert failed.status == 1 and "SUBAGENT_VERIFICATION_FAILED" in failed.stderr


def test_page_and_events_show_what_the_host_saw(prepared):
    start = {"subagent_type": "worker", "prompt": "Do it.", "description": "do it", "verify": CHECK}
    replies = [
        to("^go", calls=[{"name": "Agent", "arguments": start}]),
        to("^go", text="Started."),
        to("Do it", **WRITE),
        to("Do it", calls=[{"name": "bash", "arguments": {"command": "exit 4"}}]),
        to("Do it", text="It is <done>."),
        to("task-notification", text="Good."),
    ]
    done = prepared.run("-p", "--mode", "json", "go", replies=replies)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    [ended] = [record for record in records if record["type"] == "subagents:completed"]
    assert (ended["verification"], [file["path"] for file in ended["receipts"]["files"]]) == ("verified", ["done.txt"])
    told = json.dumps([record for record in records if record["type"] == "message_end"])
    assert "<seen-by-host>Verified by the host: `grep -q good done.txt` succeeded." in told
    prepared.run("export", "-o", "page.html")
    page = (prepared.work / "page.html").read_text()
    assert "seen by the host: verified" in page and "created done.txt" in page
    assert "$ exit 4 " in page and "exit status 4" in page and f"verified by $ {CHECK}" in page
