"""The working tree of a session: its branch, and what has changed in it since the session began.

A snapshot is taken when a session opens: git's tree of the tracked files, and size and time of the untracked ones. Its
objects are in a folder of ours, so that nothing is written into the repository.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

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
MOST_UNTRACKED, MOST_NEW, MOST_NEW_BYTES = 5000, 50, 32 * 1024
"""Untracked files that a snapshot knows, and how many new ones are shown with how much of each."""
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


class WorkingTree:
    """The working tree of one session."""

    def __init__(self, top: Path, snapshots: Path, session_id: str, *, is_begun: bool) -> None:
        """`top` is the checkout; `is_begun` says that the session has messages already."""
        self._top = top
        self._folder = snapshots / hashlib.sha256(session_id.encode()).hexdigest()[:16]
        self._is_begun = is_begun

    async def keep_start(self) -> None:
        """Take the snapshot unless there is one. Does nothing without git, or if git fails."""
        if (self._folder / "start.json").exists() or not (self._top / ".git").exists():
            return
        with suppress(OSError, RetinueError):
            await asyncio.to_thread(self._prepare)
            try:
                tree = await self._write_tree()
                untracked = await self._list_untracked()
                if tree is not None and untracked is not None:
                    start = {"tree": tree, "untracked": untracked, "isResumed": self._is_begun}
                    write_own(self._folder / "start.json", start)
            finally:
                with suppress(OSError):
                    os.unlink(self._folder / "index")

    async def compare(self, messages: Iterable[Message]) -> Changes:
        """What has changed since the session began; without a snapshot, what edits in `messages` have changed."""
        start = load_json(self._folder / "start.json")[0]
        if not isinstance(start, dict) or not isinstance(start.get("tree"), str):
            return Changes("Edits in this session", collect_edits(messages), "no git snapshot of its start")
        title = "Changes since this session was " + ("resumed" if start.get("isResumed") else "started")
        tree, note = start["tree"], ""
        shown = await self._git("diff", "--no-color", "--no-renames", tree, "--", most=MOST_BYTES)
        if shown.code == 125:
            note = "the patch is too large to show; this is its summary"
            shown = await self._git("diff", "--no-color", "--no-renames", "--stat=100", tree, "--", most=MOST_BYTES)
        if not shown.ok:
            return Changes(title, collect_edits(messages), f"git failed, so only edits are shown: {shown.problem}")
        known, now = start.get("untracked"), await self._list_untracked() or {}
        new = await asyncio.to_thread(self._render_untracked, known if isinstance(known, dict) else {}, now)
        return Changes(title, "\n".join(filter(None, (shown.text, new))), note)

    def _prepare(self) -> None:
        """Make the snapshot's folder, and remove old ones."""
        make_private(self._folder.parent)
        others = sorted(self._folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in others[: -MOST_KEPT + 1]:
            shutil.rmtree(path, ignore_errors=True)
        make_private(self._folder)
        (self._folder / "objects").mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(Path(read_git_dirs(str(self._top)).own, "index"), self._folder / "index")

    async def _write_tree(self) -> str | None:
        env = {
            "GIT_INDEX_FILE": str(self._folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(self._folder / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(read_git_dirs(str(self._top)).common, "objects"),
        }
        added = await self._git("add", "--update", "--", ".", env=env)
        made = await self._git("write-tree", env=env) if added.ok else added
        return made.text if made.ok else None

    async def _list_untracked(self) -> dict[str, list[int]] | None:
        """Size and time of each untracked file."""
        listed = await self._git("ls-files", "-z", "--others", "--exclude-standard")
        if not listed.ok:
            return None
        found: dict[str, list[int]] = {}
        for name in listed.fields[:MOST_UNTRACKED]:
            with suppress(OSError, UnicodeEncodeError):
                name.encode()  # a name that is not text cannot be stored
                stat = os.lstat(self._top / name)
                found[name] = [stat.st_size, stat.st_mtime_ns]
        return found

    def _render_untracked(self, known: Mapping[str, Any], now: Mapping[str, list[int]]) -> str:
        """Untracked files as a patch: new ones in full, changed ones by name, as their former content is unknown."""
        new = [name for name in now if name not in known]
        parts = [self._render_new(name) for name in new[:MOST_NEW]]
        parts += [f"… and {len(new) - MOST_NEW} more new files"] if len(new) > MOST_NEW else []
        parts += [f"changed, not in git: {name}" for name in now if name in known and known[name] != now[name]]
        parts += [f"deleted, not in git: {name}" for name in known if not os.path.lexists(self._top / name)]
        return "\n".join(parts)

    def _render_new(self, name: str) -> str:
        head = f"diff --git a/{name} b/{name}\nnew file, not in git"
        path = self._top / name
        try:
            if not path.is_file() or path.is_symlink():
                return head
            with path.open("rb") as file:
                data = file.read(MOST_NEW_BYTES + 1)
        except OSError:
            return head
        if b"\0" in data:
            return f"{head}\nbinary"
        lines = data[:MOST_NEW_BYTES].decode("utf-8", "replace").splitlines()
        lines = [f"+{line}" for line in lines] + (["… more"] if len(data) > MOST_NEW_BYTES else [])
        return "\n".join([f"{head}\n--- /dev/null\n+++ b/{name}", *lines])

    async def _git(self, *words: str, env: Mapping[str, str] | None = None, most: int = 16 * 1024 * 1024) -> GitResult:
        guard = await load_guard(self._top)
        if isinstance(guard, GitResult):
            return guard
        env = env or {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._folder / "objects")}
        return await run_git(words, self._top, timeout_s=GIT_S, env=env, guard=guard, max_output=most)


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
