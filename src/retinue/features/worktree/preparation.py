"""Makes a worktree ready to use: copies ignored files such as `.env`, and runs the setup command of the settings."""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.run import Outcome
from retinue.core.tool import Tool
from retinue.engine.setup import Feature, RunSetup
from retinue.features.commands import build_context, run_commands
from retinue.features.worktree.repository import WORK_TIMEOUT_S
from retinue.sandbox.open_beneath import open_beneath
from retinue.tools.git import GitGuard, run_git

INCLUDE = ".worktreeinclude"
CHANGES = "HEAD+changes"
_FICLONE = 0x40049409
"""Linux: share the content of a file until one of the two is changed."""
_SHOWN_CHARS = 2_000
_KEPT_CHARS = 100_000
MAX_FILES = 20_000


class WorktreeOptions(Struct, frozen=True):
    """What the settings say about worktrees."""

    setup: str = ""
    """The command that prepares a worktree."""
    setup_s: float = 300.0
    base: str = "HEAD"
    """`HEAD`, `HEAD+changes` or a branch."""
    refusal: str = ""
    """Why the setup command is not run, for the user."""
    log_dir: Path | None = None
    find_hidden: Callable[[Path], Sequence[str]] = lambda top: ()
    """Returns real paths of files that agents must not read."""


async def copy_included(
    top: str, root: str, guard: GitGuard, hidden: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Copy the files that `.worktreeinclude` names and git ignores into a worktree; returns their paths.

    Only what is ignored in the worktree is copied, since everything else there is committed at the end. `env` tells git
    where the worktree is.
    """
    rules = os.path.join(top, INCLUDE)
    if not _is_plain(rules):
        return []
    words = ["ls-files", "-z", "--others", "--ignored", f"--exclude-from={rules}"]
    matched = await run_git(words, top, timeout_s=WORK_TIMEOUT_S, guard=guard)
    names = [name for name in matched.out.split(b"\0") if name][:MAX_FILES] if matched.ok else []
    if not names:
        return []
    with tempfile.TemporaryFile() as asked:
        asked.write(b"\0".join(names) + b"\0")
        asked.seek(0)
        known = await run_git(["check-ignore", "-z", "--stdin"], root, guard=guard, env=env, stdin=asked.fileno())
    ignored = [os.fsdecode(name) for name in known.out.split(b"\0")]
    return await asyncio.to_thread(_copy_files, top, root, ignored, hidden)


def _copy_files(top: str, root: str, paths: Sequence[str], hidden: Sequence[str]) -> list[str]:
    copied = []
    for path in filter(None, paths):
        real = os.path.realpath(os.path.join(top, path))
        if any(real == place or real.startswith(f"{place}/") for place in hidden):
            continue
        with suppress(OSError):  # a link, or gone by now
            _copy_file(top, root, path)
            copied.append(path)
    return copied


def _is_plain(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _copy_file(top: str, root: str, path: str) -> None:
    folder, name = os.path.split(path)
    source_dir = open_beneath(top, folder)
    try:
        target_dir = open_beneath(root, folder, make=True)
        try:
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source_dir)
            with open(source, "rb") as file:
                status = os.fstat(source)
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(f"{quote(path)} is not a file")
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                target = os.open(name, flags, stat.S_IMODE(status.st_mode), dir_fd=target_dir)
                with open(target, "wb") as copy:
                    if not _share(source, target):
                        shutil.copyfileobj(file, copy)
        finally:
            os.close(target_dir)
    finally:
        os.close(source_dir)


def _share(source: int, target: int) -> bool:
    try:
        from fcntl import ioctl

        ioctl(target, _FICLONE, source)
    except (ImportError, OSError):  # another file system, or another system
        return False
    return True


async def find_changes(top: str, guard: GitGuard) -> list[str]:
    """Return the files of a checkout that differ from its last commit, without ignored ones."""
    found = await run_git(["status", "--porcelain", "-z", "--no-renames"], top, timeout_s=WORK_TIMEOUT_S, guard=guard)
    return [os.fsdecode(line[3:]) for line in found.out.split(b"\0") if line] if found.ok else []


class WorktreeSetup(Feature):
    """Runs the setup command in the sandbox of the run, before its first turn; its output is kept in a file."""

    name = "worktree setup"

    def __init__(self, options: WorktreeOptions, shell: Tool) -> None:
        self._options = options
        self._shell = shell
        self._note = ""

    async def enter(self, setup: RunSetup) -> RunSetup:
        options = self._options
        with setup.pause_idle():
            [done] = await run_commands(
                [options.setup], self._shell, build_context(setup), timeout_s=options.setup_s, max_chars=_KEPT_CHARS
            )
        text = done.output
        file = self._keep(setup.run_id, text)
        word = "succeeded" if done.is_good else "failed"
        told = f"The command `{options.setup}` (worktree.setup) was run in this copy before you began. It {word}."
        if not done.is_good:
            end = text if len(text) <= _SHOWN_CHARS else f"…{text[-_SHOWN_CHARS:]}"
            told += f" The end of its output:\n{end}"
            self._note = f"The setup command of the worktree failed (worktree.setup): {_last_line(text)}"
            self._note += f"\nIts output: `{file}`" if file else ""
        section = f"<worktree_setup>\n{told}\n</worktree_setup>"
        return setup.change(sections={**setup.sections, "worktree_setup": section})

    async def leave(self, outcome: Outcome) -> Outcome:
        if not self._note:
            return outcome
        rule = "" if outcome.notes else "\n\n---"
        return msgspec.structs.replace(outcome, notes=f"{outcome.notes}{rule}\n{self._note}")

    def _keep(self, run_id: str, text: str) -> str:
        """Store the output; returns the file, or an empty string if that fails."""
        folder = self._options.log_dir
        if folder is None:
            return ""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"{run_id}.log"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(f"$ {self._options.setup}\n{text}\n")
        except OSError:
            return ""
        return str(path)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
