import pytest

from retinue.features.checkpoint.records import RunNote
from retinue.features.checkpoint.restore import undo_restore
from retinue.features.checkpoint.rewind import rewind_files
from retinue.features.checkpoint.undo import undo_run
from tests.needs import need_program
from tests.unit.features.checkpoint.test_trees import git, open_store

TEXT = b"a\nb\nc\n"
CONE = {"in/a", "top"}
ALL = {"in/a", "large/x.bin", "out/b", "out/deep/c", "top"}


@pytest.fixture
def work(tmp_path):
    """A repository of which only `in` and the top are checked out; `large` is in Git LFS."""
    need_program("git-lfs")
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "lfs", "install", "--local", "--skip-repo")
    for name in ALL:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(TEXT)
    (folder / ".gitattributes").write_bytes(b"*.bin filter=lfs -text\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "c")
    assert b"git-lfs" in git(folder, "show", "HEAD:large/x.bin")
    git(folder, "sparse-checkout", "set", "--cone", "in")
    return folder


def read(work):
    found = {str(path.relative_to(work)): path for path in work.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".git")}


async def act(store, work):
    """Let a run widen the checkout in a command, and change files; returns the checkpoint before it."""
    point = await store.take("prompt", session="s", run="r")
    store.append(RunNote(at=1, session="s", run="r", agent="a"))
    await store.take("call", session="s", run="r", opens="r/1")
    git(work, "sparse-checkout", "add", "out", "large")
    for name in ("in/a", "out/b", "out/new"):
        (work / name).write_bytes(b"changed\n")
    await store.take("call", session="s", run="r", closes="r/1")
    await store.take("end", session="s", run="r")
    assert read(work).keys() == {*ALL, "out/new"}
    return point


async def test_rewind_keeps_what_was_checked_out(work):
    store = open_store(work)
    done = await rewind_files(store, await act(store, work), title="the rewind", session="s")
    assert (read(work), git(work, "status", "--porcelain")) == (dict.fromkeys(ALL, TEXT), b"")
    assert done.paths == ["in/a", "out/b", "out/new"]
    assert "left as they are, because the sparse checkout was changed since: large/x.bin, out/deep/c" in done.notes
    await undo_restore(store)
    assert read(work)["out/b"] == read(work)["out/new"] == b"changed\n"


async def test_undo_keeps_what_was_checked_out(work):
    store = open_store(work)
    await act(store, work)
    report = await undo_run(store, "r")
    assert (read(work), git(work, "status", "--porcelain")) == (dict.fromkeys(ALL, TEXT), b"")
    assert (report.paths, report.conflicts, len(report.notes)) == (["in/a", "out/b", "out/new"], {}, 1)


@pytest.mark.parametrize("words", [("set", "in"), ("disable",)])
async def test_rewind_does_not_change_the_cone(work, words):
    git(work, "sparse-checkout", "add", "out", "large")
    store = open_store(work)
    point = await store.take("restore", session="s")
    (work / "in" / "a").write_bytes(b"changed\n")
    (work / "in" / "new").write_bytes(b"new\n")
    git(work, "sparse-checkout", *words)
    done = await rewind_files(store, point, title="the rewind", session="s")
    expected = CONE if "in" in words else ALL
    assert (read(work), git(work, "status", "--porcelain")) == (dict.fromkeys(expected, TEXT), b"")
    assert (done.paths, len(done.notes)) == (["in/a", "in/new"], 1 if "in" in words else 0)


async def test_large_files_keep_their_content(work):
    git(work, "sparse-checkout", "disable")
    store = open_store(work)
    point = await store.take("restore", session="s")
    (work / "large" / "x.bin").write_bytes(b"changed\n")
    git(work, "commit", "-qam", "c")
    await rewind_files(store, point, title="the rewind", session="s")
    assert read(work) == dict.fromkeys(ALL, TEXT)
    await undo_restore(store)
    assert (read(work)["large/x.bin"], git(work, "status", "--porcelain")) == (b"changed\n", b"")
