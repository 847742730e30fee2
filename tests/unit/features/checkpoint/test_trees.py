import os
import subprocess

import pytest

from retinue.features.checkpoint.rewind import rewind_files
from retinue.features.checkpoint.store import CheckpointStore

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]


def git(folder, *words, **more):
    return subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, **more).stdout


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "c")


def open_store(work, hidden=()):
    return CheckpointStore(work, work.parent / "own", list_hidden=lambda: hidden)


async def rewind(store, point):
    return await rewind_files(store, point, title="the rewind", session="s")


def read(work):
    return {path.name: path.read_bytes() for path in sorted(work.iterdir()) if path.is_file()}


async def test_no_filter_runs_and_bytes_are_exact(work):
    git(work, "config", "filter.bad.clean", "touch ran; tr a-z A-Z")
    git(work, "config", "filter.bad.smudge", "touch ran; cat")
    commit(work, a_txt=b"a\n")
    git(work, "config", "core.autocrlf", "true")
    (work / ".gitattributes").write_bytes(b"*.dat filter=bad\n*.txt text eol=crlf ident\n")
    (work / "b.dat").write_bytes(b"lower\n")
    (work / "c.txt").write_bytes(b"mixed\r\nends\n$Id: x$\n")
    store, before = open_store(work), read(work)
    point = await store.take("restore", session="s")
    for name in ("a.txt", "b.dat", "c.txt"):
        (work / name).write_bytes(b"other")
    (work / ".gitattributes").unlink()
    await rewind(store, point)
    assert read(work) == before


@pytest.mark.parametrize(
    ("rule", "data"),
    [
        ("filter=up", b"lower"),
        ("ident", b"$Id: " + b"a" * 40 + b" $"),
        ("working-tree-encoding=UTF-16LE", "a\u3042".encode("utf-16-le")),
    ],
)
async def test_converted_file_of_the_same_size_is_read(work, rule, data):
    git(work, "config", "filter.up.clean", "tr a-z A-Z")
    rules = {"_gitattributes": f"* text=auto\nfile {rule}\n".encode()}
    if rule == "ident":
        commit(work, file=data)  # as it is
        (work / "file").unlink()
        commit(work, **rules)
        git(work, "checkout", "-q", "HEAD~", "--", "file")
    else:
        commit(work, **rules, file=data)
    # Git reads files again that are as new as the index.
    os.utime(work / ".git" / "index", (2**31, 2**31))
    before = read(work)
    assert len(git(work, "show", ":file")) == len(before["file"]) and git(work, "show", ":file") != before["file"]
    point = await open_store(work).take("restore", session="s")
    assert {name: git(work, "cat-file", "blob", f"{point.tree}:{name}") for name in before} == before


async def test_users_index_and_gc_do_not_matter(work):
    commit(work, a_txt=b"one\n")
    (work / "a.txt").write_bytes(b"staged\n")
    git(work, "add", ".")
    (work / "a.txt").write_bytes(b"two\n")
    index = (work / ".git" / "index").read_bytes()
    store = open_store(work)
    point = await store.take("restore", session="s")
    await store.keep("s")
    assert (work / ".git" / "index").read_bytes() == index
    (work / "a.txt").write_bytes(b"three\n")
    git(work, "add", ".")
    git(work, "reset", "-q", "--hard")
    git(work, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
    assert git(work, "log", "--all", "--oneline").count(b"\n") == 1
    await rewind(open_store(work), point)
    assert read(work) == {"a.txt": b"two\n"}


# In a merge, with sparse files, files that git is told to overlook, and another repository inside.
async def test_odd_repositories_are_restored(work):
    commit(work, a_txt=b"1\n", b_txt=b"b\n", sparse_txt=b"s\n", forced_log=b"f\n")
    git(work, "checkout", "-qb", "side")
    commit(work, a_txt=b"2\n")
    git(work, "checkout", "-q", "main")
    commit(work, a_txt=b"3\n")
    subprocess.run([*GIT, "merge", "-q", "side"], cwd=work, capture_output=True, check=False)
    git(work, "update-index", "--assume-unchanged", "b.txt")
    git(work, "update-index", "--skip-worktree", "sparse.txt")
    (work / ".gitignore").write_bytes(b"*.log\n")
    (work / "sparse.txt").unlink()
    (work / "inner").mkdir()
    git(work / "inner", "init", "-q")
    commit(work / "inner", x_txt=b"x\n")
    status, before = git(work, "status", "--porcelain"), read(work)
    store = open_store(work)
    point = await store.take("restore", session="s")
    assert git(work, "status", "--porcelain") == status
    for name in ("a.txt", "b.txt", "forced.log"):
        (work / name).write_bytes(b"changed")
    (work / "inner" / "x.txt").write_bytes(b"changed")
    await rewind(store, point)
    assert read(work) == before and (work / "inner" / "x.txt").read_bytes() == b"changed"


async def test_links_lead_nowhere(work, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "d").mkdir()
    (work / "d" / "file").write_bytes(b"inside\n")
    (work / "e").write_bytes(b"plain\n")
    commit(work)
    store = open_store(work)
    point = await store.take("restore", session="s")
    (work / "d" / "file").unlink()
    (work / "d").rmdir()
    (work / "d").symlink_to(outside)
    (work / "e").unlink()
    (work / "e").mkdir()
    (work / "e" / "below").write_bytes(b"b")
    (outside / "file").write_bytes(b"theirs")
    await rewind(store, point)
    assert ((work / "d" / "file").read_bytes(), (work / "e").read_bytes()) == (b"inside\n", b"plain\n")
    assert (os.listdir(outside), (outside / "file").read_bytes()) == (["file"], b"theirs")


async def test_hidden_and_large_files_are_not_stored(work, monkeypatch):
    monkeypatch.setattr("retinue.features.checkpoint.trees.MAX_FILE_BYTES", 100)
    commit(work, a_txt=b"a\n")
    (work / "key").write_bytes(b"secret-of-the-user")
    (work / "large").write_bytes(b"x" * 101)
    store = open_store(work, hidden=(str(work / "key"),))
    point = await store.take("restore", session="s")
    assert point.left_out == ["key", "large"]
    name = store.trees.name(b"secret-of-the-user")
    assert not list((work / ".git" / "objects").rglob(name[2:]))
    for each in ("a.txt", "key", "large"):
        (work / each).write_bytes(b"new")
    done = await rewind(CheckpointStore(work, work.parent / "own"), point)
    assert (read(work)["a.txt"], read(work)["key"], read(work)["large"]) == (b"a\n", b"new", b"new")
    assert any("key, large" in note for note in done.notes), done.notes
