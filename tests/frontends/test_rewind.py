import json
import os
import subprocess
import time

import pytest

from retinue.testing import make_repo, open_cli

FILES = {"a.txt": "one\n", "b.txt": "b\n", "crlf.txt": "x\r\ny\r\n", ".gitignore": "secret*\n", "gone.txt": "stays\n"}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def agent(prompt):
    asked = {"subagent_type": "general-purpose", "prompt": prompt, "description": "a file"}
    return call("Agent", **asked)


def git(place, *arguments):
    done = subprocess.run(["git", *arguments], cwd=place.work, capture_output=True, check=True)
    return done.stdout.decode().strip()


def read_all(place):
    """All files and links, with their bytes and whether they are executable."""
    found = {}
    for folder, folders, names in os.walk(place.work):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*names, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, place.work)
            if os.path.islink(path):
                found[key] = os.readlink(path)
            else:
                with open(path, "rb") as file:
                    found[key] = file.read(), os.access(path, os.X_OK)
    return {key: value for key, value in found.items() if not key.startswith(".pi/")}


COMMAND = """
printf 'two\\n' > a.txt; chmod +x b.txt; rm gone.txt; mkdir new; printf '\\0\\377' > new/x.bin; ln -s a.txt new/link
printf 'z\\n' > crlf.txt; printf 'changed' > secret.txt; git add a.txt; git commit -qm work; echo gone > /dev/null
"""
REPLIES = [
    to("^first", calls=[call("write", path="early.txt", content="early\n")]),
    to("^first", text="First."),
    to("^second", calls=[agent("child"), call("bash", command=COMMAND), call("write", path="secret2", content="new")]),
    to("^second", text="Second."),
    to("^child", calls=[call("write", path="child.txt", content="child\n")]),
    to("^child", text="Child."),
    to("completed|finished|notification", text="Noted."),
    to("^third", text="Third."),
]


@pytest.fixture
def worked(place):
    make_repo(place.work, FILES)
    (place.work / "secret2").write_text("old")
    before = [read_all(place)]
    for words in (("-p", "first"), ("-p", "-c", "second")):
        done = place.run(*words, replies=REPLIES)
        assert done.status == 0, done
        before.append(read_all(place))
    return before


def test_rewind_restores_files_and_conversation(place, worked):
    index = (place.work / ".git" / "index").read_bytes()
    done = place.run("rewind")
    assert done.status == 0, done
    now = read_all(place)
    assert now.pop("secret.txt") == (b"changed", False)  # git ignores it, and a command made it
    assert now == worked[1]
    assert "The prompt was: second" in done.stdout and "secret2" in done.stdout
    assert "the checked-out commit stays" in done.stderr and "command was run since" in done.stderr
    assert (place.work / ".git" / "index").read_bytes() == index
    again = place.run("-p", "-c", "third", replies=REPLIES)
    assert again.stdout == "Third.\n"
    listed = place.run("rewind", "--list").stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["first", "third"]


def test_rewind_can_be_taken_back(place, worked):
    assert place.run("rewind", "--to", "1").status == 0
    assert read_all(place).keys() == {*worked[0], "secret.txt"}
    done = place.run("rewind", "--undo")
    assert (done.status, read_all(place)) == (0, worked[2])
    assert [line.split()[-1] for line in place.run("rewind", "--list").stdout.splitlines()] == ["first", "second"]
    assert place.run("rewind", "--undo").status == 1


def test_files_or_conversation_alone(place, worked):
    assert place.run("rewind", "--conversation").status == 0
    assert (read_all(place), place.run("rewind", "--list").stdout.count("\n")) == (worked[2], 1)
    assert place.run("rewind", "--undo").status == 0
    assert place.run("rewind", "--files").status == 0
    assert read_all(place) == {**worked[1], "secret.txt": (b"changed", False)}
    assert place.run("rewind", "--list").stdout.count("\n") == 2


def test_wrong_input_is_refused(place, worked):
    for words, status, told in (
        (("rewind", "--to", "x"), 2, "--to must be the number of a prompt"),
        (("rewind", "--to", "3"), 2, "there is no prompt 3"),
        (("rewind", "nosuch"), 2, "there is no session"),
        (("rewind", "--undo", "--files"), 2, "use it alone"),
        (("rewind", "--undo"), 1, "can be undone"),
        (("undo",), 2, "undo needs the id of a run"),
        (("undo", "zzz"), 2, "no run 'zzz'"),
        (("undo", "a", "--ours", "--theirs"), 2, "contradict"),
    ):
        done = place.run(*words)
        assert (done.status, told in done.stderr, "Traceback" in done.stderr) == (status, True, False), done
    assert read_all(place) == worked[2]


def test_only_edits_are_known_without_a_repository(place):
    (place.work / "a.txt").write_text("one\n")
    replies = [
        to("^go", calls=[call("write", path="a.txt", content="two\n"), call("write", path="d/new.txt", content="n")]),
        to("^go", calls=[call("bash", command="echo made > by-command")]),
        to("^go", text="Done."),
    ]
    assert place.run("-p", "go", replies=replies).status == 0
    done = place.run("rewind")
    assert (done.status, read_all(place)) == (0, {"a.txt": (b"one\n", False), "by-command": (b"made\n", False)})
    assert "is not in a git repository" in done.stderr


def test_ignored_before_is_not_removed(place):
    make_repo(place.work, {".gitignore": "kept\n"})
    (place.work / "kept").write_text("mine\n")
    command = "echo hidden > .gitignore; echo h > hidden"
    replies = [to("^go", calls=[call("bash", command=command)]), to("^go", text="Done.")]
    assert place.run("-p", "go", replies=replies).status == 0
    assert (place.work / "hidden").exists()
    done = place.run("rewind")
    assert (done.status, read_all(place)) == (0, {".gitignore": (b"kept\n", False), "kept": (b"mine\n", False)})


def test_kill_in_the_middle_is_repaired(place, worked, monkeypatch):
    """Killed after each file in turn, a rewind can be taken back, and repeated."""
    for count in range(4):
        env = {"PYTHONPATH": str(place.root), "KILL_AFTER": str(count)}
        (place.root / "sitecustomize.py").write_text(KILLER)
        killed = place.run("rewind", env=env)
        assert killed.status == -9, killed
        assert read_all(place) != worked[2] or count == 0
        if count % 2:
            assert place.run("rewind", "--to", "2").status == 0
            assert read_all(place) == {**worked[1], "secret.txt": (b"changed", False)}
        assert place.run("rewind", "--undo").status == 0
        assert read_all(place) == worked[2]


KILLER = """
import os, signal
from pathlib import Path
left = int(os.environ.get("KILL_AFTER", "-1"))
if left >= 0:
    replace = os.replace

    def kill_later(source, target, **places):
        global left
        if places and str(source).endswith("restore.tmp"):
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        replace(source, target, **places)

    os.replace = kill_later
"""


@pytest.fixture
def crowd(place):
    """Two agents that edit in place, one that runs a command, one in a worktree; gives their run ids."""
    make_repo(place.work, {"a.txt": "".join(f"{number}\n" for number in range(1, 9))})

    def edit(old, new):
        return [call("read", path="a.txt"), call("edit", path="a.txt", edits=[{"oldText": old, "newText": new}])]

    work = {
        "one": edit("2\n", "two\n"),
        "two": edit("3\n", "three\n"),
        "three": [call("bash", command="sed -i s/7/seven/ a.txt; echo x > made.txt; chmod +x a.txt")],
        "four": edit("two\n", "TWO\n"),
        "copy": [call("write", path="copied.txt", content="c\n"), call("write", path="made.txt", content="x\ny\n")],
    }
    replies = [to(f"^{name} ", calls=[each]) for name, calls in work.items() for each in calls]
    replies += [to(f"^{name} ", text="Done.") for name in work]
    start = [{"subagent_type": "general-purpose", "prompt": f"{name} now", "description": name} for name in work]
    start[-1]["isolation"] = "worktree"
    replies += [to(f"^go {each['description']}$", calls=[call("Agent", **each)]) for each in start]
    replies += [to("", text="Seen.")]
    runs = {}
    for name in work:
        session = [] if name == "one" else ["-c"]
        done = place.run("-p", *session, "--mode", "json", f"go {name}", replies=replies)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        runs[name] = next(line["id"] for line in lines if line["type"] == "subagents:completed")
    assert (place.work / "a.txt").read_text() == "1\nTWO\nthree\n4\n5\n6\nseven\n8\n"
    return runs


def test_undo_takes_out_one_run(place, crowd):
    before = read_all(place)
    told = place.run("undo", crowd["one"][:9])
    assert (told.status, read_all(place)) == (1, before)
    assert told.stdout == f"a.txt: line 2 changed later by general-purpose {crowd['four'][:8]}\n"
    assert place.run("undo", crowd["two"], "--dry-run").stdout.endswith("1 file\n  a.txt\n")
    assert read_all(place) == before
    assert place.run("undo", crowd["two"]).status == 0
    assert read_all(place)["a.txt"] == (b"1\nTWO\n3\n4\n5\n6\nseven\n8\n", True)
    # An undo that finds nothing more is not the one that is taken back.
    assert place.run("undo", crowd["two"]).stdout.endswith("no files\n")
    assert "rewind --undo" not in place.run("undo", crowd["two"]).stderr
    assert place.run("rewind", "--undo").stdout.endswith("1 file\n  a.txt\n")
    assert place.run("undo", crowd["two"]).status == 0
    assert place.run("undo", crowd["three"]).status == 0
    assert read_all(place) == {"a.txt": (b"1\nTWO\n3\n4\n5\n6\n7\n8\n", False)}
    assert place.run("undo", crowd["one"], "--ours").status == 0
    assert read_all(place)["a.txt"][0] == b"1\nTWO\n3\n4\n5\n6\n7\n8\n"
    assert place.run("undo", crowd["one"], "--theirs").status == 0
    assert read_all(place)["a.txt"][0] == b"1\n2\n3\n4\n5\n6\n7\n8\n"
    assert place.run("rewind", "--undo").status == 0
    assert read_all(place)["a.txt"][0] == b"1\nTWO\n3\n4\n5\n6\n7\n8\n"


def test_undo_of_a_worktree_run(place, crowd):
    branch = f"pi-agent-{crowd['copy']}"
    before = read_all(place)
    dry = place.run("undo", crowd["copy"], "--dry-run")
    assert "would be moved to" in dry.stderr and git(place, "branch", "--list", branch)
    put = place.run("undo", crowd["copy"])
    assert (put.status, git(place, "branch", "--list", branch), read_all(place)) == (0, "", before)
    git(place, "branch", branch, f"refs/retinue/undone/{branch}")
    (place.work / "made.txt").unlink()
    git(place, "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", branch)
    assert place.run("undo", crowd["copy"]).status == 0
    assert read_all(place).keys() == {"a.txt"}


def test_undo_of_a_run_that_landed_in_part(place, crowd):
    branch, before = f"pi-agent-{crowd['copy']}", read_all(place)
    (place.work / "made.txt").unlink()
    git(place, "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", branch)
    again = call("Agent", subagent_type="general-purpose", prompt="more", description="more", resume=crowd["copy"])
    more = [call("read", path="copied.txt"), call("write", path="copied.txt", content="changed\n")]
    replies = [to("^again", calls=[again]), *[to("^more", calls=[each]) for each in more], to("", text="Seen.")]
    place.run("-p", "-c", "again", replies=replies)
    assert (git(place, "show", f"{branch}:copied.txt"), read_all(place)["copied.txt"][0]) == ("changed", b"c\n")
    done = place.run("undo", crowd["copy"])
    assert (done.status, read_all(place)) == (0, {"a.txt": before["a.txt"]}), done.stderr
    assert f"it was moved to refs/retinue/undone/{branch}" in done.stderr
    assert git(place, "branch", "--list", branch) == ""


def test_readonly_run_takes_no_checkpoint(place):
    make_repo(place.work, FILES)
    asked = call("Agent", subagent_type="Explore", prompt="look around", description="a look")
    replies = [
        to("^begin", calls=[asked]),
        to("^begin", text="It is on it."),
        to("^look around", calls=[call("bash", command="cat a.txt")]),
        to("^look around", text="Seen."),
        to("completed|finished|notification", text="Noted."),
    ]
    assert place.run("-p", "begin", replies=replies).status == 0
    (log,) = (place.agent_dir / "retinue" / "checkpoints").glob("*/log.jsonl")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    taken = [record["kind"] for record in records if "kind" in record]
    assert ("call" in taken, "begin" in taken, len({record["run"] for record in records})) == (False, False, 2), taken


def test_long_log_loses_its_older_half(place, worked):
    (log,) = (place.agent_dir / "retinue" / "checkpoints").glob("*/log.jsonl")
    records = log.read_text().splitlines(keepends=True)
    large = {"session": "old", "left_out": ["x" * 999]}
    old = [json.dumps({**json.loads(line), **large}) + "\n" for line in records] * (10_000 // len(records))
    log.write_text("".join([*old, *records]))
    size = log.stat().st_size
    assert size > 8 * 1024 * 1024
    done = place.run("-p", "-c", "third", replies=REPLIES)
    assert (done.status, log.stat().st_size < size * 0.6) == (0, True), done
    assert place.run("rewind", "--to", "2").status == 0
    assert {**read_all(place), "secret.txt": None} == {**worked[1], "secret.txt": None}


def test_killed_command_is_not_blamed_later(place):
    """What a process that was killed might have changed ends with the next checkpoint."""
    make_repo(place.work, FILES)
    model = place.script(to("^one", calls=[call("bash", command="echo k > killed.txt; sleep 60")]))
    with open_cli(["--model", model, "-p", "one"], place.work, home=place.home) as process:
        deadline_s = time.monotonic() + 20
        while not (place.work / "killed.txt").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        process.kill()
    start = agent("child")
    replies = [
        to("^two", calls=[start]),
        to("^two", text="Started."),
        to("^child", calls=[call("bash", command="echo c > child.txt")]),
        to("^child", text="Child."),
        to("completed|finished|notification", text="Noted."),
    ]
    done = place.run("-p", "--mode", "json", "two", replies=replies)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    run = next(line["id"] for line in lines if line["type"] == "subagents:completed")
    undone = place.run("undo", run)
    assert (undone.status, "child.txt" in read_all(place)) == (0, False), undone


def test_run_of_the_command_line_is_undone(place):
    make_repo(place.work, FILES)
    model = place.script({"calls": [call("write", path="a.txt", content="two\n")]}, {"text": "Done."})
    done = place.run("run", "--write", "--model", model, "general-purpose", "do it", "--json")
    run = json.loads(done.stdout)["details"]["runId"]
    assert read_all(place)["a.txt"] == (b"two\n", False)
    assert place.run("undo", run).status == 0
    assert read_all(place)["a.txt"] == (b"one\n", False)
