"""`retinue land` as a program: real repositories, real checks in the sandbox, real runs as authors."""

import json
import time

import pytest

from retinue.testing.process import open_cli
from tests.flows.merge_world import git, make_repository

CHECK = "! test -e broken && ! { test -e one && test -e two; }"
BASE = {"a.txt": "a\nb\nc\n", "other.txt": "x\n"}


@pytest.fixture
def repo(place):
    """Makes the repository of the working folder, and approves a check in the user's file."""

    def make(branches, check=CHECK, base=BASE, **landing):
        make_repository(place.work, branches, base)
        landing = {"verify": check, **landing} if check else landing
        (place.agent_dir / "subagents.json").write_text(json.dumps({"landing": landing}))
        return place.work

    return make


def land(place, *words, status):
    done = place.run("land", *words, "--json")
    assert done.status == status, done.stderr
    return json.loads(done.stdout)


def test_culprits_stay_behind(place, repo):
    work = repo({
        "first": {"a.txt": "a\nfirst\nc\n"},
        "broken": {"broken": ""},
        "second": {"a.txt": "a\nsecond\nc\n"},
        "one": {"one": ""},
        "two": {"two": ""},
    })  # fmt: skip
    report = land(place, "first", "broken", "missing", "second", "one", "two", status=1)
    refused = {item["branch"]: (item["reason"], item["with"]) for item in report["refused"]}
    assert report["landed"] == ["first", "one"]
    assert refused == {
        "broken": ("verify", ["first"]),
        "missing": ("gone", []),
        "second": ("conflict", ["first"]),
        "two": ("verify", ["first", "one"]),
    }
    assert (report["target"], report["after"]) == ("main", git(work, "rev-parse", "main"))
    merges = [report["before"], git(work, "rev-parse", "first"), git(work, "rev-parse", "one")]
    assert git(work, "rev-list", "--first-parent", "--parents", "main").split()[1::3] == [
        git(work, "rev-parse", "main^"),
        report["before"],
    ]
    assert [
        git(work, "rev-parse", "main^^"),
        git(work, "rev-parse", "main^^2"),
        git(work, "rev-parse", "main^2"),
    ] == merges
    assert (git(work, "status", "--porcelain"), (work / "a.txt").read_text()) == ("", "a\nfirst\nc\n")
    assert git(work, "worktree", "list").count("\n") == 0


def test_nothing_lands_without_check(place, repo):
    work = repo({"first": {"a.txt": "first\n"}, "second": {"a.txt": "second\n"}}, check="")
    done = place.run("land", "first")
    assert (done.status, "landing.verify" in done.stderr, git(work, "log", "--format=%s")) == (2, True, "main")
    report = land(place, "first", "second", "--no-verify", status=1)
    assert (report["landed"], report["refused"][0]["reason"]) == (["first"], "conflict")


def test_project_check_needs_consent(place, repo):
    work = repo({"first": {"a.txt": "first\n"}}, check="")
    (work / ".pi").mkdir()
    (work / ".pi" / "subagents.json").write_text(json.dumps({"landing": {"verify": ["true", CHECK], "mode": "auto"}}))
    assert place.run("trust", "--yes").status == 0
    done = place.run("land", "first")
    assert (done.status, "retinue trust --command landing.verify --yes" in done.stderr) == (2, True)
    assert "landing.mode" in done.stderr
    assert place.run("trust", "--command", "landing.verify", "--yes").status == 0
    assert land(place, "first", status=0)["landed"] == ["first"]
    (work / ".pi" / "subagents.json").write_text(json.dumps({"landing": {"verify": ["true"]}}))
    assert place.run("land", "first").status == 2


def test_dry_run_changes_nothing(place, repo):
    work = repo({"first": {"a.txt": "first\n"}, "broken": {"broken": ""}})
    before = git(work, "for-each-ref")
    report = land(place, "broken", "first", "--dry-run", status=1)
    assert (report["landed"], [item["branch"] for item in report["refused"]]) == (["first"], ["broken"])
    assert (git(work, "for-each-ref"), report["before"] == report["after"]) == (before, True)


def test_nothing_to_land_is_told(place, repo):
    repo({"first": {"a.txt": "first\n"}})
    done = place.run("land", "--all")
    assert (done.status, done.stdout.splitlines()[0]) == (0, "nothing to land: no branch of an agent is waiting")


def test_second_queue_says_whom_it_waits_for(place, repo):
    work = repo({"first": {"a.txt": "first\n"}, "second": {"b.txt": "x\n"}})
    gate = place.root / "gate"
    check = f"until test -e {gate}; do sleep 0.1; done"
    (place.agent_dir / "subagents.json").write_text(
        json.dumps({"landing": {"verify": check}, "sandbox": {"mode": "off"}})
    )
    journals = place.agent_dir / "retinue" / "landing"
    with open_cli(["land", "first"], work, home=place.home) as one:
        while one.poll() is None and sum(map(count_lines, journals.glob("*.jsonl"))) < 2:
            time.sleep(0.01)
        with open_cli(["land", "second"], work, home=place.home) as two:
            told = two.stderr.readline().decode()
            gate.touch()
            assert (one.wait(20), two.wait(20)) == (0, 0)
    assert f"another merge queue works on '{work}/.git': retinue land (process {one.pid} on " in told
    assert told.endswith("; waiting for it, at most 60 s\n")


@pytest.mark.parametrize("words", [(), ("first", "--onto", "nowhere"), ("first", "--ont")])
def test_wrong_words_are_refused(place, repo, words):
    repo({"first": {"a.txt": "first\n"}})
    done = place.run("land", *words)
    assert (done.status, done.stdout, "Traceback" in done.stderr) == (2, "", False)


def test_checkout_follows_beside_other_changes(place, repo):
    work = repo({"first": {"a.txt": "first\n", "new/file": "x\n"}})
    (work / "other.txt").write_text("mine\n")
    (work / "untracked").write_text("mine\n")
    assert land(place, "first", status=0)["notes"] == []
    assert ((work / "a.txt").read_text(), (work / "other.txt").read_text()) == ("first\n", "mine\n")
    assert git(work, "status", "--porcelain").split() == ["M", "other.txt", "??", "untracked"]


@pytest.mark.parametrize("path", ["a.txt", "new"])
def test_checkout_in_the_way_stays(place, repo, path):
    work = repo({"first": {"a.txt": "first\n", "new": "x\n"}})
    (work / path).write_text("mine\n")
    before = git(work, "status", "--porcelain")
    report = land(place, "first", status=0)
    assert git(work, "rev-parse", "main") == report["after"] != report["before"]
    assert path in report["notes"][0]
    # Neither files nor index nor commit have changed: the next commit takes nothing back.
    assert ((work / path).read_text(), git(work, "status", "--porcelain")) == ("mine\n", before)
    assert git(work, "rev-parse", "HEAD") == report["before"]


def test_other_branch_may_be_target(place, repo):
    work = repo({"first": {"a.txt": "first\n"}, "release": {"other.txt": "y\n"}})
    report = land(place, "first", "--onto", "release", status=0)
    assert git(work, "rev-parse", "release") == report["after"]
    assert (git(work, "log", "--format=%s", "main"), (work / "a.txt").read_text()) == ("main", BASE["a.txt"])


def test_programs_of_repository_never_run(place, repo, tmp_path):
    mark = tmp_path / "ran"
    work = repo({"first": {"a.txt": "a\nfirst\nc\n"}, "second": {"a.txt": "a\nb\nsecond\n"}}, base={
        **BASE, ".gitattributes": "*.txt merge=evil filter=evil diff=evil\n"})  # fmt: skip
    command = f"touch {mark}; cat"
    for key in ("filter.evil.clean", "filter.evil.smudge", "diff.evil.command", "diff.evil.textconv"):
        git(work, "config", key, command)
    git(work, "config", "merge.evil.driver", f"touch {mark}")
    for hook in ("post-merge", "post-checkout", "reference-transaction", "pre-merge-commit", "post-index-change"):
        (work / ".git/hooks" / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (work / ".git/hooks" / hook).chmod(0o755)
    git(work, "config", "core.fsmonitor", f"touch {mark}")
    mark.unlink(missing_ok=True)
    report = land(place, "first", "second", status=1)
    assert (report["landed"], mark.exists()) == (["first"], False)
    assert "filter" in report["notes"][0]


def test_killed_program_continues(place, repo):
    names = [f"pi-agent-{number}" for number in range(6)]
    work = repo({name: {f"{name}.txt": "x\n", **({"broken": ""} if name == names[3] else {})} for name in names})
    journals = place.agent_dir / "retinue" / "landing"
    for entries in (2, 5, 8):
        with open_cli(["land", "--all"], work, home=place.home) as program:
            while program.poll() is None and sum(map(count_lines, journals.glob("*.jsonl"))) < entries:
                time.sleep(0.001)
            program.kill()
    report = land(place, "--all", status=1)
    assert (sorted(report["landed"]), report["refused"][0]["branch"]) == (sorted({*names} - {names[3]}), names[3])
    assert len(git(work, "rev-list", "--merges", "main").split()) == 5
    assert git(work, "status", "--porcelain") == ""


def test_interrupted_queue_keeps_its_target(place, repo):
    work = repo(
        {"first": {"a.txt": "first\n"}, "second": {"b.txt": "x\n"}, "release": {"c.txt": "x\n"}}, check="sleep 60"
    )
    kill_queue(place, "first", "second")
    (place.agent_dir / "subagents.json").write_text(json.dumps({"landing": {"verify": "true"}}))
    git(work, "switch", "-q", "release")
    done = place.run("land")
    assert (done.status, "to continue an interrupted queue, use --onto main" in done.stderr) == (2, True)
    # With another check it begins again, with the same branches.
    report = land(place, "--onto", "main", status=0)
    assert (report["target"], report["landed"]) == ("main", ["first", "second"])
    assert place.run("land", "--onto", "main").status == 2


def kill_queue(place, *words):
    """Kill a queue while it checks."""
    journals = place.agent_dir / "retinue" / "landing"
    with open_cli(["land", *words], place.work, home=place.home) as program:
        while program.poll() is None and sum(map(count_lines, journals.glob("*.jsonl"))) < 2:
            time.sleep(0.01)
        program.kill()


def test_lock_of_killed_git_is_removed(place, repo):
    work = repo({"first": {"a.txt": "first\n"}}, check="sleep 60")
    kill_queue(place, "first")
    (place.agent_dir / "subagents.json").write_text(json.dumps({"landing": {"verify": "true"}}))
    (work / ".git" / "index.lock").touch()
    assert land(place, "first", status=0)["notes"] == []
    assert (git(work, "status", "--porcelain"), (work / "a.txt").read_text()) == ("", "first\n")


def test_names_may_be_ambiguous(place, repo):
    work = repo({"first": {"a.txt": "first\n"}})
    git(work, "tag", "main")
    git(work, "tag", "first", "main")
    assert land(place, "first", status=0)["landed"] == ["first"]
    assert (git(work, "rev-parse", "refs/heads/main^2"), git(work, "status", "--porcelain")) == (
        git(work, "rev-parse", "refs/heads/first"),
        "",
    )


def test_checkout_waits_for_other_git(place, repo):
    work = repo({"first": {"a.txt": "first\n"}}, check="")
    lock = work / ".git" / "index.lock"
    lock.touch()
    with open_cli(["land", "first", "--no-verify"], work, home=place.home) as program:
        journals = place.agent_dir / "retinue" / "landing"
        while program.poll() is None and not sum(map(count_lines, journals.glob("*.jsonl"))):
            time.sleep(0.01)
        lock.unlink()
        assert program.wait(20) == 0
    assert (git(work, "symbolic-ref", "HEAD"), (work / "a.txt").read_text()) == ("refs/heads/main", "first\n")


def count_lines(path):
    return len(path.read_text().splitlines())


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def start_agents(place, *contents, after=()):
    """Let a session's agents change the same line, each in a copy; returns their branches."""
    asked = {"subagent_type": "general-purpose", "description": "a file", "isolation": "worktree"}
    calls = [{"name": "Agent", "arguments": {**asked, "prompt": f"write {text}"}} for text in contents]
    replies = [to("^begin", calls=calls), to("^begin", text="started")]
    for text in contents:
        file = {"path": "a.txt", "content": f"a\n{text}\nc\n"}
        replies += [
            to(f"^write {text}", calls=[{"name": "write", "arguments": file}]),
            to(f"^write {text}", text="Made it"),
        ]
    replies += [*after, to("Changes saved", text="Thank you")]
    both = {"path": "a.txt", "content": "a\nboth\nc\n"}
    replies += [to("could not land", calls=[{"name": "write", "arguments": both}]), to("could not land", text="Fixed")]
    done = place.run("-p", "begin", replies=replies)
    assert done.status == 0, done.stderr
    return git(place.work, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/pi-agent-*").split()


def test_author_solves_conflict(place, repo):
    work = repo({}, check="grep -q both a.txt || ! grep -q '<<<' a.txt")
    branches = start_agents(place, "one", "two")
    report = land(place, *branches, status=0)
    assert (report["landed"], report["refused"]) == (branches, [])
    assert (work / "a.txt").read_text() == "a\nboth\nc\n"
    # The author worked on a merge of its branch with main.
    assert len(git(work, "rev-list", "--merges", "main").split()) == 3


def test_solved_conflict_is_undone(place, repo):
    work = repo({}, check="grep -q both a.txt || ! grep -q '<<<' a.txt")
    branches = start_agents(place, "one", "two")
    land(place, *branches, status=0)
    done = place.run("undo", branches[1].removeprefix("pi-agent-"))
    assert (done.status, done.stdout.splitlines()[1:]) == (0, ["  a.txt"]), done.stderr
    # Which of the two landed first is not known.
    assert (work / "a.txt").read_text() == git(work, "show", f"{branches[0]}:a.txt") + "\n"


def test_author_of_open_session_is_asked(place, repo):
    work = repo({}, check="grep -q both a.txt || ! grep -q '<<<' a.txt", mode="auto")
    call = {"name": "land_branches", "arguments": {"all": True}}
    branches = start_agents(place, "one", "two", after=[to("Changes saved", calls=[call])])
    assert git(work, "for-each-ref", "--format=%(refname:lstrip=2)", "--no-merged=main", "refs/heads") == ""
    assert (len(branches), (work / "a.txt").read_text()) == (2, "a\nboth\nc\n")


def test_author_without_model_is_told(place, repo):
    work = repo({})
    branches = start_agents(place, "one", "two")
    tips = git(work, "for-each-ref", "refs/heads/pi-agent-*")
    (place.root / "script.json").unlink()
    report = land(place, *branches, status=1)
    assert (report["landed"], report["refused"][0]["reason"]) == (branches[:1], "conflict")
    assert "script.json" in report["refused"][0]["text"]
    assert git(work, "for-each-ref", "refs/heads/pi-agent-*") == tips


def call_tool(place, repo, mode, *words):
    repo({"pi-agent-1": {"new.txt": "x\n"}}, mode=mode)
    call = {"name": "land_branches", "arguments": {"all": True}}
    done = place.run("-p", "--mode", "json", "go", *words, replies=[{"calls": [call]}, {"text": "done"}])
    records = [json.loads(line) for line in done.stdout.splitlines()]
    results = [record for record in records if record["type"] == "tool_execution_end"]
    return results[0]["result"]["content"][0]["text"], [record for record in records if record["type"] == "landing"]


def test_agent_lands_in_auto_mode(place, repo):
    text, steps = call_tool(place, repo, "auto")
    assert text.startswith("landed: pi-agent-1\nmain: ")
    assert [step["step"] for step in steps] == ["started", "checking", "checked", "landed", "ended"]
    assert (place.work / "new.txt").exists()


@pytest.mark.parametrize("mode, told", [("ask", "retinue land --all"), ("off", "land_branches")])
def test_agent_lands_nothing_alone(place, repo, mode, told):
    text, steps = call_tool(place, repo, mode)
    assert (told in text, steps, (place.work / "new.txt").exists()) == (True, [], False)
