import subprocess

import pytest

from retinue.core.messages import AssistantMessage, ToolCall, ToolResultMessage, Usage
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


def open_tree(folder, tmp_path, *, is_begun=False):
    return WorkingTree(folder, tmp_path / "snapshots", "s-1", is_begun=is_begun)


async def test_only_later_changes_are_shown(checkout, tmp_path):
    (checkout / "a.txt").write_text("one\ntwo\n")
    (checkout / "loose.txt").write_text("loose\n")
    await open_tree(checkout, tmp_path).keep_start()
    objects = sorted(path.name for path in (checkout / ".git" / "objects").rglob("*") if path.is_file())
    assert (await open_tree(checkout, tmp_path).compare(())).patch == ""
    (checkout / "a.txt").write_text("one\ntwo\nthree\n")
    (checkout / "loose.txt").write_text("changed\n")
    (checkout / "new.bin").write_bytes(b"\0")
    (checkout / "new.txt").write_text("new\n")
    (checkout / "large.txt").write_text("x" * 1_100_000)
    (checkout / "odd\n.txt").write_text("odd\n")
    changes = await open_tree(checkout, tmp_path, is_begun=True).compare(())
    assert changes.title == "Changes since this session was started"
    assert "+three" in changes.patch and "+two" not in changes.patch
    assert "-loose\n+changed" in changes.patch and "b/new.bin differ" in changes.patch and "+new" in changes.patch
    assert "large" not in changes.patch and "+odd" in changes.patch
    assert changes.note == "untracked files left out as too large or too many: 1"
    assert objects == sorted(path.name for path in (checkout / ".git" / "objects").rglob("*") if path.is_file())


async def test_committed_and_deleted_files_count(checkout, tmp_path):
    (checkout / "loose.txt").write_text("loose\n")
    await open_tree(checkout, tmp_path, is_begun=True).keep_start()
    (checkout / "loose.txt").unlink()
    (checkout / "b.txt").write_text("new\n")
    run(checkout, "rm", "-q", "a.txt")
    run(checkout, "add", ".")
    run(checkout, "commit", "-qm", "second")
    changes = await open_tree(checkout, tmp_path).compare(())
    assert changes.title == "Changes since this session was resumed"
    lines = changes.patch.splitlines()
    assert [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")] == ["-one", "+new", "-loose"]


async def test_files_outside_of_sparse_checkout_count(checkout, tmp_path):
    (checkout / "out").mkdir()
    (checkout / "out" / "b.txt").write_text("one\n")
    run(checkout, "add", ".")
    run(checkout, "commit", "-qm", "second")
    run(checkout, "sparse-checkout", "set", "--cone")
    await open_tree(checkout, tmp_path).keep_start()
    assert not (checkout / "out").exists()
    (checkout / "out").mkdir()
    (checkout / "out" / "b.txt").write_text("two\n")
    patch = (await open_tree(checkout, tmp_path).compare(())).patch
    assert "-one\n+two" in patch and "a.txt" not in patch


async def test_repository_without_commits_is_compared(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    run(folder, "init", "-q")
    await open_tree(folder, tmp_path).keep_start()
    (folder / "a.txt").write_text("one\n")
    assert (await open_tree(folder, tmp_path).compare(())).patch.endswith("+++ b/a.txt\n@@ -0,0 +1 @@\n+one")


async def test_without_git_edits_are_shown(tmp_path):
    tree = open_tree(tmp_path, tmp_path)
    await tree.keep_start()
    assert not (tmp_path / "snapshots").exists()
    call = ToolCall(id="1", name="write", arguments={"path": "a.txt", "content": "x\ny"})
    messages = [
        AssistantMessage(
            content=[call], api="", provider="", model="", usage=Usage(), stop_reason="toolUse", timestamp=0
        ),
        ToolResultMessage("1", "write", [], is_error=False, timestamp=0),
    ]
    wanted = Changes("Edits in this session", "--- written\n+++ a.txt\n+x\n+y", "this folder is not in git")
    assert await tree.compare(messages) == wanted
    assert collect_edits(messages[:1]) == ""


def test_branch_is_read_from_files(checkout, tmp_path):
    run(checkout, "worktree", "add", "-q", "-b", "side/one", str(tmp_path / "copy"))
    (checkout / "sub").mkdir()
    run(checkout, "checkout", "-q", "--detach")
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True).stdout
    folders = (checkout / "sub", tmp_path / "copy", tmp_path)
    assert [read_branch(folder, None) for folder in folders] == [head[:7], "side/one", ""]
