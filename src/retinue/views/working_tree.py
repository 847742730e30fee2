"""The working tree of a session: its branch, and what has changed in it since the first checkpoint of the session."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from retinue.features.checkpoint.records import Checkpoint
from retinue.features.checkpoint.store import CheckpointStore
from retinue.features.sandbox import find_workspace
from retinue.sandbox.gitdirs import read_git_dirs, read_line

MOST_BYTES = 1024 * 1024
"""Largest patch that is shown."""


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

    def __init__(self, store: CheckpointStore | None, session_id: str) -> None:
        """`store` is None if no checkpoints are taken."""
        self._store = store
        self._session = session_id

    async def keep_start(self) -> None:
        """Take a checkpoint if the session has none. A failure is ignored: then only edits are shown."""
        if self._store is not None and self._store.has_trees and await self._find_start(self._store) is None:
            with suppress(RetinueError, OSError):
                await self._store.take("restore", session=self._session)

    async def compare(self, messages: Iterable[Message]) -> Changes:
        """What has changed since the session's first checkpoint; without one, what edits in `messages` have changed."""
        store, note = self._store, "no checkpoints are taken"
        if store is not None:
            start = await self._find_start(store)
            note = "there is no checkpoint yet" if store.has_trees else "this folder is not in git"
            if start is not None:
                try:
                    return await _compare(store, start)
                except (RetinueError, OSError) as error:
                    note = str(error)
        return Changes("Edits in this session", collect_edits(messages), note)

    async def _find_start(self, store: CheckpointStore) -> Checkpoint | None:
        records = await asyncio.to_thread(store.read_records)
        taken = (each for each in records if isinstance(each, Checkpoint) and each.tree)
        return next((each for each in taken if each.session == self._session), None)


async def _compare(store: CheckpointStore, start: Checkpoint) -> Changes:
    """Raises RetinueError."""
    patch, is_whole, left_out = await store.trees.render_patch(start.tree, start.left_out, most=MOST_BYTES)
    notes = [f"files left out as hidden, unreadable or too large: {len(left_out)}"] if left_out else []
    notes += [] if is_whole else ["the patch is too large to show; this is its summary"]
    when = datetime.fromtimestamp((start.asked or start.at) / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    return Changes(f"Changes since the first checkpoint of this session, {when}", patch, "; ".join(notes))


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
