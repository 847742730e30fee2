"""The working tree of a session: its branch, and what has changed in it since the session began.

A snapshot is taken when a session opens: a tree of git with the tracked files as they are and the untracked ones. Its
objects are in a folder of ours, so that nothing is written into the repository.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from retinue.features.sandbox import find_workspace
from retinue.sandbox.gitdirs import read_git_dirs, read_line
from retinue.sessions.files import make_private
from retinue.settings.decisions import write_own
from retinue.settings.files import load_json
from retinue.tools.git import GitResult, load_guard, run_git

GIT_S = 10.0
MOST_BYTES = 1024 * 1024
"""Largest patch that is shown."""
MOST_UNTRACKED, MOST_FILE_BYTES, MOST_UNTRACKED_BYTES = 2000, 1024 * 1024, 16 * 1024 * 1024
"""Untracked files that a snapshot contains, the largest of them, and all together."""
MOST_LEFT_OUT = 200
MOST_KEPT = 50
"""Sessions whose snapshots are kept."""


def read_branch(cwd: Path, home: Path | None) -> str:
    """The branch of a checkout, or the start of its commit; empty without git. Reads files, starts no program."""
    own = read_git_dirs(str(find_workspace(cwd, home))).own
    head = read_line(os.path.join(own, "HEAD")) if own else ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:7]


class Changes(Struct, frozen=True):
    title: str
    patch: str = ""
    """A unified diff; empty if nothing has changed."""
    note: str = ""


class Snapshot(Struct, frozen=True, rename="camel"):
    tree: str
    is_resumed: bool = False
    """Whether the session had messages already."""
    left_out: list[str] = []
    """Files that git does not know and that are too large or too many to be stored."""


class WorkingTree:
    """The working tree of one session."""

    def __init__(self, top: Path, snapshots: Path, session_id: str, *, is_begun: bool) -> None:
        """`top` is the checkout; `is_begun` says that the session has messages already."""
        self._top = top
        self._folder = snapshots / hashlib.sha256(session_id.encode()).hexdigest()[:16]
        self._is_begun = is_begun

    async def keep_start(self) -> None:
        """Take the snapshot unless there is one. Does nothing without git, or if git fails."""
        if (self._folder / "start.json").exists() or not self._is_repository:
            return
        with suppress(OSError, RetinueError):
            await asyncio.to_thread(self._prepare)
            if (start := await self._take_snapshot(is_resumed=self._is_begun)) is not None:
                write_own(self._folder / "start.json", to_builtins(start))

    async def compare(self, messages: Iterable[Message]) -> Changes:
        """What has changed since the session began; without a snapshot, what edits in `messages` have changed."""
        if not self._is_repository:
            return Changes("Edits in this session", collect_edits(messages), "this folder is not in git")
        start = self._load_start()
        if start is None:
            return Changes("Edits in this session", collect_edits(messages), "git has no snapshot of its start")
        title = f"Changes since this session was {'resumed' if start.is_resumed else 'started'}"
        now = await self._take_snapshot()
        if now is None:
            return Changes("Edits in this session", collect_edits(messages), "git could not read the working tree")
        left_out = list(dict.fromkeys((*start.left_out, *now.left_out)))
        where = (".", *(f":(exclude,literal){name}" for name in left_out))
        words = ("diff", "--no-color", "--no-renames", start.tree, now.tree, "--", *where)
        shown = await self._git(*words, most=MOST_BYTES)
        notes = [f"untracked files left out as too large or too many: {len(left_out)}"] if left_out else []
        if shown.code == 125:
            notes.append("the patch is too large to show; this is its summary")
            shown = await self._git("diff", "--stat=100", *words[1:], most=MOST_BYTES)
        if not shown.ok:
            return Changes("Edits in this session", collect_edits(messages), f"git failed: {shown.problem}")
        return Changes(title, shown.text, "; ".join(notes))

    @property
    def _is_repository(self) -> bool:
        return (self._top / ".git").exists()

    def _load_start(self) -> Snapshot | None:
        try:
            return convert(load_json(self._folder / "start.json")[0], Snapshot)
        except ValidationError:
            return None

    def _prepare(self) -> None:
        """Make the snapshot's folder, and remove old ones."""
        make_private(self._folder.parent)
        others = sorted(self._folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in others[: -MOST_KEPT + 1]:
            shutil.rmtree(path, ignore_errors=True)
        make_private(self._folder)
        (self._folder / "objects").mkdir(exist_ok=True)

    async def _take_snapshot(self, *, is_resumed: bool = False) -> Snapshot | None:
        """Store the working tree as a tree of git, in an index of its own; None if git fails."""
        with TemporaryDirectory(dir=self._folder) as scratch:
            index, names = Path(scratch, "index"), Path(scratch, "names")
            with suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.copyfile, Path(read_git_dirs(str(self._top)).own, "index"), index)
            listed = await self._git("ls-files", "-z", "--others", "--exclude-standard")
            if not listed.ok:
                return None
            small, left_out = await asyncio.to_thread(_choose_files, self._top, listed.fields)
            await asyncio.to_thread(names.write_bytes, b"".join(os.fsencode(name) + b"\0" for name in small))
            with await asyncio.to_thread(names.open, "rb") as file:
                for words in (
                    ("add", "--update", "--sparse", "--", "."),
                    ("update-index", "--add", "--remove", "-z", "--stdin"),
                ):
                    if not (await self._git(*words, index=index, stdin=file.fileno())).ok:
                        return None
            made = await self._git("write-tree", index=index)
        return Snapshot(made.text, is_resumed, left_out) if made.ok else None

    async def _git(
        self, *words: str, index: Path | None = None, stdin: int = DEVNULL, most: int = 16 * 1024 * 1024
    ) -> GitResult:
        """Run git with the snapshot's objects; new ones are written beside them, never into the repository."""
        guard = await load_guard(self._top)
        if isinstance(guard, GitResult):
            return guard
        # What is lost in a crash of the machine is only this snapshot.
        guard = replace(guard, settings=(*guard.settings, ("core.fsync", "none")))
        env = {
            "GIT_OBJECT_DIRECTORY": str(self._folder / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(read_git_dirs(str(self._top)).common, "objects"),
            **({"GIT_INDEX_FILE": str(index)} if index is not None else {}),
        }
        return await run_git(words, self._top, timeout_s=GIT_S, env=env, guard=guard, max_output=most, stdin=stdin)


def _choose_files(top: Path, untracked: Sequence[str]) -> tuple[list[str], list[str]]:
    """The untracked files that are stored, and at most some of those that are not."""
    small: list[str] = []
    left_out: list[str] = []
    room = MOST_UNTRACKED_BYTES
    for name in untracked:
        try:
            size = os.lstat(top / name).st_size
        except OSError:
            continue
        if name.endswith("/"):  # another repository
            continue
        if size > min(room, MOST_FILE_BYTES) or len(small) == MOST_UNTRACKED:
            left_out.append(name)
        else:
            small.append(name)
            room -= size
    return small, [name for name in left_out[:MOST_LEFT_OUT] if name.isprintable()]


def collect_edits(messages: Iterable[Message]) -> str:
    """What `edit` and `write` have changed, from the results of their calls."""
    calls: dict[str, ToolCall] = {}
    parts = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls |= {call.id: call for call in message.calls}
        elif isinstance(message, ToolResultMessage) and not message.is_error:
            call = calls.get(message.tool_call_id)
            if call is None or message.tool_name not in ("edit", "write"):
                continue
            details = message.details if isinstance(message.details, dict) else {}
            path, patch = str(call.arguments.get("path", "")), details.get("patch")
            written = "\n".join(f"+{line}" for line in str(call.arguments.get("content", "")).splitlines())
            parts.append(patch if isinstance(patch, str) else f"--- written\n+++ {path}\n{written}")
    return "\n".join(part.rstrip("\n") for part in parts)
