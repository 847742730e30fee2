"""`retinue land` and undo with real Git LFS, and in a sparse checkout."""

import json
import os

import pytest

from tests.flows.merge_world import git, make_repository
from tests.frontends.test_land import land, start_agents, to
from tests.needs import need_program

FILES = {"top.txt": "a\n", "in/a.txt": "a\nb\nc\n", "out/b.txt": "a\nb\nc\n", "other/d.txt": "x\n"}


def configure(place, **landing):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"landing": landing}))


@pytest.fixture
def large(place):
    """A repository whose `.bin` files are in Git LFS; its filters are in its own configuration, as commands see it."""
    need_program("git-lfs")
    work = place.work
    make_repository(work, {}, {"a.txt": "a\n", "old.dat": "old" * 999, ".gitattributes": "*.bin filter=lfs -text\n"})
    git(work, "lfs", "install", "--local", "--skip-repo")
    store(work, "main", {"a.bin": b"a" * 3000})
    configure(place, verify="git lfs checkout && test $(wc -c < a.bin) -gt 2000")
    return work


def store(work, branch, files):
    """Commit files on a branch as a person does, with the filters of Git LFS."""
    git(work, "switch", "-q", *([] if branch == "main" else ["-c", branch]), branch if branch == "main" else "main")
    for path, content in files.items():
        (work / path).write_bytes(content)
    git(work, "add", "--renormalize", ".")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", branch)
    git(work, "switch", "-q", "main")


def read_large(work):
    git(work, "lfs", "fsck", "--objects")
    return {path.name: path.read_bytes() for path in work.glob("*.bin")}


def test_large_files_land_as_pointers(place, large):
    store(large, "pi-agent-1", {"a.bin": b"1" * 4000, "new.bin": b"n" * 300})
    store(large, "pi-agent-2", {"a.bin": b"2" * 4000})
    store(large, "pi-agent-3", {"a.txt": b"b\n"})
    before = git(large, "rev-parse", "main")
    report = land(place, "pi-agent-1", "pi-agent-2", "pi-agent-3", status=1)
    assert report["landed"] == ["pi-agent-1", "pi-agent-3"]
    assert [(item["branch"], item["reason"]) for item in report["refused"]] == [("pi-agent-2", "conflict")]
    # No filter was run: the checkout keeps its files and its commit, and the person is told what to do.
    [note] = report["notes"]
    assert "a git filter is configured for 'a.bin', 'new.bin'" in note and note.endswith("To follow: git switch main")
    assert (git(large, "rev-parse", "HEAD"), git(large, "status", "--porcelain")) == (before, "")
    assert read_large(large) == {"a.bin": b"a" * 3000}
    git(large, *note.partition("To follow: git ")[2].split())
    assert read_large(large) == {"a.bin": b"1" * 4000, "new.bin": b"n" * 300}
    assert git(large, "status", "--porcelain") == ""


def test_small_files_land_beside_large_ones(place, large):
    store(large, "pi-agent-1", {"a.txt": b"b\n"})
    os.utime(large / "a.bin")
    report = land(place, "pi-agent-1", status=0)
    assert (report["notes"], git(large, "rev-parse", "HEAD")) == ([], report["after"])
    assert (read_large(large), (large / "a.txt").read_text()) == ({"a.bin": b"a" * 3000}, "b\n")
    assert git(large, "status", "--porcelain") == ""


def test_rule_for_large_files_may_land(place, large):
    store(large, "pi-agent-1", {".gitattributes": b"*.bin filter=lfs -text\n*.dat filter=lfs -text\n"})
    [note] = land(place, "pi-agent-1", status=0)["notes"]
    assert "'old.dat'" in note
    assert (large / "old.dat").read_text() == "old" * 999
    git(large, "switch", "-q", "main")
    assert ((large / "old.dat").read_text(), git(large, "status", "--porcelain")) == ("old" * 999, "")


def start_agent(place, command):
    call = {"subagent_type": "general-purpose", "description": "files", "isolation": "worktree", "prompt": "work"}
    bash = {"name": "bash", "arguments": {"command": command}}
    replies = [to("^begin", calls=[{"name": "Agent", "arguments": call}]), to("^begin", text="started")]
    replies += [to("^work", calls=[bash]), to("^work", text="Made it"), to("Changes saved", text="Thank you")]
    done = place.run("-p", "begin", replies=replies)
    assert done.status == 0, done.stderr
    [branch] = git(place.work, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/pi-agent-*").split()
    return branch


def test_agent_uses_large_files(place, large):
    commit = "printf '%5000s' 1 > one.bin && git add . && git commit -qm one && printf '%5000s' 2 > one.bin"
    branch = start_agent(place, f"git lfs checkout && {commit} && git commit -qam two && echo raw > raw.bin")
    # What it committed to Git LFS is kept, also its first version, and what it only read is as it was.
    assert git(large, "diff", "--name-status", "main", branch) == "A\tone.bin\nA\traw.bin"
    git(large, "lfs", "fsck", f"main..{branch}", "--objects")
    [note] = land(place, branch, status=0)["notes"]
    assert "('raw.bin' landed with the full content, not in Git LFS; afterwards: git add --renormalize ." in note
    git(large, "switch", "-q", "main")
    assert read_large(large) == {"a.bin": b"a" * 3000, "one.bin": b"%5000s" % b"2", "raw.bin": b"raw\n"}
    git(large, "add", "--renormalize", ".")
    git(large, "commit", "-q", "-m", "manage")
    assert git(large, "show", "main:raw.bin").startswith("version https://git-lfs")
    assert git(large, "status", "--porcelain") == ""


def test_undo_writes_no_pointers(place, large):
    configure(place)
    branch = start_agent(
        place, "git lfs checkout && printf '%5000s' 1 > a.bin && echo b > a.txt && git commit -qam one"
    )
    land(place, branch, "--no-verify", status=0)
    git(large, "switch", "-q", "main")
    run = branch.removeprefix("pi-agent-")
    for words in ((), ("--theirs",)):
        done = place.run("undo", run, *words)
        assert (done.status, "a.bin: its git filter is not run here: first git checkout " in done.stdout) == (1, True)
        assert (read_large(large)["a.bin"], (large / "a.txt").read_text()) == (b"%5000s" % b"1", "b\n")
    words = done.stdout.partition("first git ")[2].partition(", then")[0].replace("'", "").split()
    git(large, *words)
    assert place.run("undo", run, "--ours").status == 0
    assert (read_large(large), (large / "a.txt").read_text()) == ({"a.bin": b"a" * 3000}, "a\n")


@pytest.fixture(params=[(), ("--sparse-index",)], ids=["full-index", "sparse-index"])
def sparse(place, request):
    """Makes a repository with branches, of which only the files at the top and in `in` are checked out."""

    def make(branches, verify="test -e other/d.txt && ! test -e out/broken"):
        make_repository(place.work, branches, FILES)
        git(place.work, "sparse-checkout", "set", "--cone", *request.param, "in")
        configure(place, verify=verify)
        return place.work

    return make


def list_files(work):
    return sorted(
        str(path.relative_to(work))
        for path in work.rglob("*")
        if path.is_file() and not {".git", ".pi"} & {*path.parts}
    )


ONE = {"in/a.txt": "a\none\nc\n", "out/b.txt": "a\none\nc\n", "out/new.txt": "n\n", "far/new.txt": "n\n"}


def test_sparse_checkout_follows(place, sparse):
    work = sparse({"one": ONE, "broken": {"out/broken": ""}, "two": {"out/b.txt": "a\ntwo\nc\n"}})
    # The check sees all files, also those that are not checked out here.
    report = land(place, "one", "broken", "two", status=1)
    refused = {item["branch"]: item["reason"] for item in report["refused"]}
    assert (report["landed"], refused, report["notes"]) == (["one"], {"broken": "verify", "two": "conflict"}, [])
    assert (git(work, "status", "--porcelain"), git(work, "rev-parse", "HEAD")) == ("", report["after"])
    assert (list_files(work), (work / "in/a.txt").read_text()) == (["in/a.txt", "top.txt"], ONE["in/a.txt"])
    git(work, "sparse-checkout", "disable")
    assert list_files(work) == sorted({*FILES, *ONE})
    assert (git(work, "status", "--porcelain"), (work / "out/b.txt").read_text()) == ("", ONE["out/b.txt"])


@pytest.mark.parametrize("path", ["out/b.txt", "out/new.txt"])
def test_file_outside_of_cone_is_in_the_way(place, sparse, path):
    work = sparse({"one": ONE})
    (work / "out").mkdir()
    (work / path).write_text("mine\n")
    before = git(work, "status", "--porcelain")
    report = land(place, "one", status=0)
    [note] = report["notes"]
    assert f"{path!r} is not committed and would be changed" in note
    assert ((work / path).read_text(), git(work, "status", "--porcelain")) == ("mine\n", before)
    assert git(work, "rev-parse", "HEAD") == report["before"]


def test_partial_clone_is_told(place, tmp_path):
    source = tmp_path / "source"
    make_repository(source, {}, FILES)
    git(source, "config", "uploadpack.allowFilter", "true")
    git(place.work, "clone", "-q", "--filter=blob:none", "--sparse", f"file://{source}", ".")
    git(place.work, "sparse-checkout", "set", "--cone", "in")
    git(place.work, "config", "user.name", "Ada")
    git(place.work, "config", "user.email", "ada@example.org")
    store(place.work, "one", {"in/a.txt": b"one\n"})
    configure(place, verify="test -e in/a.txt && ! test -e other")
    report = land(place, "one", status=0)
    assert (report["landed"], "this partial clone" in report["notes"][0]) == (["one"], True)
    assert list_files(place.work) == ["in/a.txt", "top.txt"]


def test_author_solves_conflict_in_sparse_checkout(place, sparse):
    work = sparse({}, verify="grep -q both a.txt || ! grep -q '<<<' a.txt")
    (work / "a.txt").write_text("a\nb\nc\n")
    git(work, "add", "a.txt")
    git(work, "commit", "-q", "-m", "a")
    branches = start_agents(place, "one", "two")
    assert (land(place, *branches, status=0)["landed"], list_files(work)) == (
        branches,
        ["a.txt", "in/a.txt", "top.txt"],
    )
    assert ((work / "a.txt").read_text(), git(work, "status", "--porcelain")) == ("a\nboth\nc\n", "")


def test_undo_names_what_is_not_checked_out(place, sparse):
    work = sparse({})
    branch = start_agent(place, "mkdir out && echo x > out/b.txt && echo x > out/new.txt && echo x > top.txt")
    land(place, branch, "--no-verify", status=0)
    assert ((work / "top.txt").read_text(), list_files(work)) == ("x\n", ["in/a.txt", "top.txt"])
    run = branch.removeprefix("pi-agent-")
    done = place.run("undo", run)
    assert (done.status, (work / "top.txt").read_text()) == (1, "x\n")
    for path in ("out/b.txt", "out/new.txt"):
        assert f"{path}: the sparse checkout leaves it out: first add its folder" in done.stdout
    git(work, "sparse-checkout", "add", "out")
    assert place.run("undo", run).status == 0
    assert (list_files(work), (work / "top.txt").read_text()) == (["in/a.txt", "out/b.txt", "top.txt"], "a\n")
