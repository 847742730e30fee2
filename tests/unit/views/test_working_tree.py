import subprocess

import pytest

from retinue.core.messages import AssistantMessage, ToolCall, ToolResultMessage, Usage
from retinue.features.checkpoint.store import CheckpointStore
from retinue.views.working_tree import Changes, WorkingTree, collect_edits, read_branch

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]


def run(folder, *words):
    subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    run(folder, "init", "-q", "-b", "trunk")
    run(folder, "add", ".")
    run(folder, "commit", "-qm", "first")
    return folder


def open_tree(folder, tmp_path):
    store = CheckpointStore(folder, tmp_path / "own")
    return WorkingTree(store, "s-1"), store


def list_objects(folder):
    return sorted(path.name for path in (folder / ".git" / "objects").rglob("*") if path.is_file())


async def test_only_later_changes_are_shown(checkout, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.features.checkpoint.trees.MAX_FILE_BYTES", 1_000)
    (checkout / "a.txt").write_text("one\ntwo\n")
    (checkout / "loose.txt").write_text("loose\n")
    tree, store = open_tree(checkout, tmp_path)
    await store.take("prompt", session="other", run="r")
    assert (await tree.compare(())).note == "there is no checkpoint yet"
    await store.take("prompt", session="s-1", run="r")
    assert (await tree.compare(())).patch == ""
    (checkout / "a.txt").write_text("one\ntwo\nthree\n")
    await store.take("prompt", session="s-1", run="r")
    objects, log = list_objects(checkout), store.read_records()
    (checkout / "loose.txt").write_text("changed\n")
    (checkout / "new.bin").write_bytes(b"\0")
    (checkout / "new.txt").write_text("new\n")
    (checkout / "large.txt").write_text("x" * 1_100)
    (checkout / "odd\n.txt").write_text("odd\n")
    changes = await open_tree(checkout, tmp_path)[0].compare(())
    assert changes.title.startswith("Changes since the first checkpoint of this session, 2")
    assert "+three" in changes.patch and "+two" not in changes.patch
    assert "-loose\n+changed" in changes.patch and "b/new.bin differ" in changes.patch and "+new" in changes.patch
    assert "large" not in changes.patch and "+odd" in changes.patch
    assert changes.note == "files left out as hidden, unreadable or too large: 1"
    assert (list_objects(checkout), store.read_records()) == (objects, log)


async def test_long_patch_is_summed_up(checkout, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.views.working_tree.MOST_BYTES", 1_000)
    tree, store = open_tree(checkout, tmp_path)
    await store.take("prompt", session="s-1", run="r")
    (checkout / "a.txt").write_text("more\n" * 1_000)
    changes = await tree.compare(())
    assert (changes.note, "1 file changed" in changes.patch) == (
        "the patch is too large to show; this is its summary",
        True,
    )


async def test_committed_and_deleted_files_count(checkout, tmp_path):
    (checkout / "loose.txt").write_text("loose\n")
    tree, _ = open_tree(checkout, tmp_path)
    await tree.keep_start()
    (checkout / "loose.txt").unlink()
    (checkout / "b.txt").write_text("new\n")
    run(checkout, "rm", "-q", "a.txt")
    run(checkout, "add", ".")
    run(checkout, "commit", "-qm", "second")
    await tree.keep_start()
    lines = (await tree.compare(())).patch.splitlines()
    assert [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")] == ["-one", "+new", "-loose"]


async def test_files_outside_of_sparse_checkout_count(checkout, tmp_path):
    (checkout / "out").mkdir()
    (checkout / "out" / "b.txt").write_text("one\n")
    run(checkout, "add", ".")
    run(checkout, "commit", "-qm", "second")
    run(checkout, "sparse-checkout", "set", "--cone")
    await open_tree(checkout, tmp_path)[0].keep_start()
    assert not (checkout / "out").exists()
    (checkout / "out").mkdir()
    (checkout / "out" / "b.txt").write_text("two\n")
    patch = (await open_tree(checkout, tmp_path)[0].compare(())).patch
    assert "+++ b/out/b.txt" in patch and "+two" in patch and "a.txt" not in patch


async def test_repository_without_commits_is_compared(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    run(folder, "init", "-q")
    tree, _ = open_tree(folder, tmp_path)
    await tree.keep_start()
    (folder / "a.txt").write_text("one\n")
    assert (await tree.compare(())).patch.endswith("+++ b/a.txt\n@@ -0,0 +1 @@\n+one")


async def test_without_git_edits_are_shown(tmp_path):
    tree, _ = open_tree(tmp_path, tmp_path)
    await tree.keep_start()
    assert not (tmp_path / "own").exists()
    call = ToolCall(id="1", name="write", arguments={"path": "a.txt", "content": "x\ny"})
    messages = [
        AssistantMessage(
            content=[call], api="", provider="", model="", usage=Usage(), stop_reason="toolUse", timestamp=0
        ),
        ToolResultMessage("1", "write", [], is_error=False, timestamp=0),
    ]
    wanted = Changes("Edits in this session", "--- written\n+++ a.txt\n+x\n+y", "this folder is not in git")
    assert await tree.compare(messages) == wanted
    assert (await WorkingTree(None, "s-1").compare(messages)).note == "no checkpoints are taken"
    assert collect_edits(messages[:1]) == ""


def test_branch_is_read_from_files(checkout, tmp_path):
    run(checkout, "worktree", "add", "-q", "-b", "side/one", str(tmp_path / "copy"))
    (checkout / "sub").mkdir()
    run(checkout, "checkout", "-q", "--detach")
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True).stdout
    folders = (checkout / "sub", tmp_path / "copy", tmp_path)
    assert [read_branch(folder, None) for folder in folders] == [head[:7], "side/one", ""]
