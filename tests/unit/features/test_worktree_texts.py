import os
from pathlib import Path

import pytest

from retinue.features.worktree.feature import render_notes
from retinue.features.worktree.records import CopyRecord
from retinue.features.worktree.saved_work import KeptCopy, render_message
from retinue.features.worktree.traces import find_nested, find_tips, is_own_link, restore_notes
from retinue.tools.git import GitResult

A, B, C, D = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)


def make_record(**fields: object) -> CopyRecord:
    plain = {"run_id": "r", "state": "live", "path": "/tmp/c", "top": "/my repo", "common": "/r/.git", "base": A}
    return CopyRecord(**{**plain, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "names_repo", "expected"),
    [
        (KeptCopy(), False, ""),
        (KeptCopy("b"), False, "\n\n---\nChanges saved to branch `b`\nMerge: `git merge b`"),
        (KeptCopy("b"), True, "\n\n---\nChanges saved to branch `b` in `/my repo`\nMerge: `git -C '/my repo' merge b`"),
        (KeptCopy("", "/tmp/c", "full"), False, "\n\n---\nThe copy stays at `/tmp/c`: full"),
        (KeptCopy(notes=("One.", "Two.")), True, "\n\n---\nOne.\nTwo."),
    ],
)
def test_notes_say_where_work_is(kept: KeptCopy, names_repo: bool, expected: str) -> None:
    assert render_notes(kept, make_record(names_repo=names_repo)) == expected


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("fix it", "pi-agent: fix it"),
        ("", "pi-agent: "),
        (" two\nlines\0\x1b[31m ", "pi-agent: two lines [31m"),
        ("\ud800x", "pi-agent: �x"),
        ("y" * 201, "pi-agent: " + "y" * 200),
    ],
)
def test_message_is_one_line(description: str, expected: str) -> None:
    assert render_message(description) == expected


def test_tips_are_read_from_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lines = [
        (B, A, "checkout: x"),
        (A, C, "commit: y"),
        (C, D, "commit (amend): z"),
        (D, A, "reset: moving"),
        ("", "", ""),
    ]
    text = "".join(f"{old} {new} Some One <x@y> 1 +0000\t{message}\n" for old, new, message in lines)
    (tmp_path / "logs" / "HEAD").write_text(text + "torn")
    (tmp_path / "ORIG_HEAD").write_text("e" * 40 + "\n")
    assert find_tips(str(tmp_path)) == [A, D, B, "e" * 40]


def test_missing_log_has_no_tips(tmp_path: Path) -> None:
    assert find_tips(str(tmp_path)) == []


def test_nested_repositories_are_found(tmp_path: Path) -> None:
    for name in (".git", "a/.git/x", "b/c/.git", "ignored/d/.git", "e/f"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "e" / ".git").write_text("gitdir: elsewhere")
    os.symlink(tmp_path / "a", tmp_path / "link")
    assert find_nested(str(tmp_path), ["ignored/"]) == ["a", "b/c", "e"]


def test_links_are_compared_by_place(tmp_path: Path) -> None:
    git_dir, root = tmp_path / "g", tmp_path / "c"
    git_dir.mkdir()
    root.mkdir()
    found = [is_own_link(str(root), str(git_dir))]
    for text in (f"gitdir: {git_dir}\n", "gitdir: ../g\n", f"gitdir: {root}\n", ""):
        (root / ".git").write_text(text)
        found.append(is_own_link(str(root), str(git_dir)))
    assert found == [True, True, True, False, False]


@pytest.mark.parametrize("bent", ["/elsewhere\n", "", None])
def test_bent_notes_are_restored(tmp_path: Path, bent: str | None) -> None:
    git_dir = tmp_path / ".git" / "worktrees" / "x"
    git_dir.mkdir(parents=True)
    if bent is not None:
        (git_dir / "commondir").write_text(bent)
    restore_notes(str(git_dir), str(tmp_path / ".git"))
    assert (git_dir / "commondir").read_text() == "../..\n"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (GitResult(1), "git ended with status 1"),
        (GitResult(128, error="hint: x\nfatal: not \x1b[1m good\nmore"), "fatal: not \\x1b[1m good"),
        (GitResult(1, error="\n odd \n"), "odd"),
    ],
)
def test_problem_is_one_line(result: GitResult, expected: str) -> None:
    assert result.problem == expected
