"""Gives files of the workspace other versions, and can take that back, also after a kill in the middle.

What will be done is recorded first: each file then has either its version before or the one after.
"""

import asyncio
import os
import secrets
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from retinue.core.errors import RetinueError, quote
from retinue.features.checkpoint.records import (
    LINK,
    Checkpoint,
    FileVersion,
    Record,
    Restoration,
    RestorationEnd,
    Versions,
)
from retinue.features.checkpoint.store import CheckpointStore
from retinue.sandbox.open_beneath import open_beneath

_DRAFT = ".retinue-restore.tmp"


class Restored(Struct, frozen=True):
    paths: list[str] = []
    """Files that were changed."""
    problems: list[str] = []
    """Files that were not, each with the reason."""
    leaf: str | None = None
    """The entry at which the conversation was before."""
    session: str = ""


async def restore_files(
    store: CheckpointStore,
    targets: Mapping[str, FileVersion | None],
    *,
    title: str,
    session: str = "",
    leaf: str | None = None,
    contents: Mapping[str, bytes] | None = None,
    ends: bool = True,
) -> Restored:
    """Give files these versions. Nothing is changed if a content is lost. Raises RetinueError.

    `contents` are those that are not stored yet, by name. Without `ends` more is restored afterwards.
    """
    found = {path: store.read_file(path) for path in targets}
    problems = [f"{path}: {each.problem}" for path, each in found.items() if each.problem]
    steps = {
        path: (found[path].version, version)
        for path, version in targets.items()
        if not found[path].problem and found[path].version != version and _is_plain(path)
    }
    loaded = {**await store.load(after for _, after in steps.values()), **(contents or {})}
    if lost := [path for path, (_, after) in steps.items() if after is not None and after.id not in loaded]:
        raise RetinueError(f"nothing was restored: the stored content of {_name_some(lost)} is lost")
    for each in {**{after.id: loaded[after.id] for _, after in steps.values() if after is not None}}.values():
        store.save(each)
    for path in steps:
        if found[path].version is not None:
            store.save(found[path].content)
    begun = Restoration(
        at=time.time_ns(),
        id=secrets.token_hex(8),
        title=title,
        session=session,
        files=[(path, before, after) for path, (before, after) in steps.items()],
        leaf=leaf,
    )
    store.append(begun)
    problems += await asyncio.to_thread(_apply, store.top, {path: after for path, (_, after) in steps.items()}, loaded)
    if ends:
        store.append(RestorationEnd(at=time.time_ns(), id=begun.id))
    failed = {text.partition(": ")[0] for text in problems}
    return Restored(sorted(steps.keys() - failed), problems)


async def undo_restore(store: CheckpointStore) -> Restored:
    """Take back the last restoration, with one before it that was killed. Raises RetinueError."""
    undone = list_undoable(store.read_records())
    if not undone:
        raise RetinueError("there is no rewind or undo in this folder that can be undone")
    wanted: dict[str, Versions] = {}
    for each in undone:  # newest first
        for path, before, after in each.files:
            wanted[path] = before, wanted[path][1] if path in wanted else after
    known: dict[str, set[FileVersion | None]] = {}
    for each in undone:
        for path, *versions in each.files:
            known.setdefault(path, set()).update(versions)
    now = {path: store.read_file(path) for path in wanted}
    if changed := [path for path, each in now.items() if each.problem or each.version not in known[path]]:
        raise RetinueError(
            f"nothing was changed: {_name_some(changed)} changed since {undone[0].title}; "
            "move these files away to bring back the others"
        )
    steps = {path: before for path, (before, _) in wanted.items() if now[path].version != before}
    loaded = await store.load(steps.values())
    if lost := [path for path, version in steps.items() if version is not None and version.id not in loaded]:
        raise RetinueError(f"nothing was restored: the stored content of {_name_some(lost)} is lost")
    problems = await asyncio.to_thread(_apply, store.top, steps, loaded)
    store.append(*(RestorationEnd(at=time.time_ns(), id=each.id, undone=True) for each in undone))
    failed = {text.partition(": ")[0] for text in problems}
    return Restored(sorted(steps.keys() - failed), problems, undone[-1].leaf, undone[-1].session)


def end_restoration(store: CheckpointStore) -> None:
    """Record that the last restoration is complete."""
    begun = [record for record in store.read_records() if isinstance(record, Restoration)]
    store.append(RestorationEnd(at=time.time_ns(), id=begun[-1].id))


def list_undoable(records: Iterable[Record]) -> list[Restoration]:
    """Return the last restoration that was not undone, then those before it that were not finished; newest first."""
    begun: list[Restoration] = []
    ended: dict[str, bool] = {}
    is_interrupted = False
    for record in records:
        if isinstance(record, Restoration):
            # What was left half done before agents worked again is not part of a later one.
            begun = [each for each in begun if each.id in ended] if is_interrupted else begun
            begun.append(record)
            is_interrupted = False
        elif isinstance(record, Checkpoint) and record.kind in ("prompt", "begin"):
            is_interrupted = True
        elif isinstance(record, RestorationEnd):
            ended[record.id] = ended.get(record.id, False) or record.undone
    found: list[Restoration] = []
    for each in reversed([each for each in begun if not ended.get(each.id, False)]):
        if found and each.id in ended:
            break
        found.append(each)
    return found


def _apply(top: str, targets: Mapping[str, FileVersion | None], contents: Mapping[str, bytes]) -> list[str]:
    """Give files these versions and return the problems. Removes first: a file may take the place of a folder."""
    problems = []
    for path in sorted(targets, key=lambda path: targets[path] is not None):
        version = targets[path]
        try:
            if version is None:
                _remove(top, path)
            else:
                _write(top, path, version, contents[version.id])
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
    return problems


def _remove(top: str, path: str) -> None:
    """Remove a file, and the folders that are then empty."""
    while path:
        folder, name = os.path.split(path)
        try:
            parent = open_beneath(top, folder)
        except FileNotFoundError:
            return
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            if stat.S_ISDIR(status.st_mode):
                return  # not empty
            raise
        finally:
            os.close(parent)
        path = folder


def _write(top: str, path: str, version: FileVersion, content: bytes) -> None:
    folder, name = os.path.split(path)
    parent = open_beneath(top, folder, make=True)
    try:
        with suppress(FileNotFoundError):
            os.unlink(_DRAFT, dir_fd=parent)
        if version.mode == LINK:
            os.symlink(content, _DRAFT, dir_fd=parent)
        else:
            handle = os.open(_DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(handle, _choose_mode(parent, name, os.fstat(handle), version.mode == "100755"))
        os.replace(_DRAFT, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(_DRAFT, dir_fd=parent)
        raise
    finally:
        os.close(parent)


def _choose_mode(parent: int, name: str, draft: os.stat_result, is_executable: bool) -> int:
    """Return the rights of the file that is replaced, else of a new one; executable for those who may read it."""
    mode = stat.S_IMODE(draft.st_mode)
    with suppress(FileNotFoundError):
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
        mode = stat.S_IMODE(old.st_mode) if stat.S_ISREG(old.st_mode) else mode
    return mode | (mode & 0o444) >> 2 if is_executable else mode & ~0o111


def _is_plain(path: str) -> bool:
    return ".git" not in (part.lower() for part in path.split("/"))


def _name_some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(quote(path, 200) for path in paths[:5]) + more
