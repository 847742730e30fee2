"""Saves trust decisions about folders: in pi's trust.json, and in our own file what each decision is bound to.

Both programs may write at once, so the file is locked as pi locks it. Must not know what trust is used for.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError, UsageError, quote
from retinue.sessions.files import make_private
from retinue.settings.files import FileBound, load_json
from retinue.settings.layers import load_settings
from retinue.settings.paths import PROJECT_MARKS, Paths, expand_path, find_configs, find_paths
from retinue.settings.trust import Trust, find_bindings_file, find_exposure, identify, is_too_wide, load_decisions
from retinue.tools.atomic_write import replace_file

STALE_AFTER_S = 10.0
"""A lock that was not renewed for this long is abandoned; pi's value."""
WAIT_S = 5.0
MOST_FOLDERS = 20_000
"""How many folders are searched for configuration when a folder is trusted; the user is asked about others later."""


def save_decision(paths: Paths, folder: Path, decision: bool | None) -> None:
    """Store a decision about a folder; None removes it. Raises ConfigError or UsageError.

    `folder` must be absolute and without links, as `find_cwd` returns it.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{quote(str(folder), 200)} is not UTF-8, so trust.json cannot store it") from None
    if decision and is_too_wide(folder, paths.home):
        raise UsageError(f"{quote(str(folder), 200)} contains your home directory; trust single projects instead")
    path = paths.trust_file
    if problem := find_exposure(path):
        raise ConfigError(f"{path}: {problem}; nothing is saved")
    with open_change(path):
        _write_bindings(paths, folder, decision)
        kept = load_own(path, load_decisions(path)[1])
        kept.pop(str(folder), None)
        if decision is not None:
            kept[str(folder)] = decision
        write_own(path, dict(sorted(kept.items())))


def _write_bindings(paths: Paths, folder: Path, decision: bool | None) -> None:
    path = find_bindings_file(paths)
    content = load_own(path) or {"version": 1}
    folders = content.get("folders")
    bound = dict(folders) if isinstance(folders, dict) else {}
    bound.pop(str(folder), None)
    identity = identify(folder)
    if decision and identity is not None:
        configs = list_configs(folder)
        bound[str(folder)] = {"device": identity[0], "inode": identity[1], "configs": configs}
    if bound == (folders or {}):
        return
    make_private(path.parent)
    write_own(path, {**content, "folders": bound})


def list_configs(folder: Path) -> dict[str, int]:
    """Return the configuration folders in and below a folder with their inodes; nested repositories are skipped."""
    found: dict[str, int] = {}
    for count, (place, names, files) in enumerate(os.walk(folder)):
        if count >= MOST_FOLDERS:
            break
        if place != str(folder) and ".git" in (*names, *files):
            names.clear()
            continue
        for path in (os.path.join(place, name) for name in find_configs(Path(place))):
            found[os.path.relpath(path, folder)] = os.stat(path).st_ino
        names[:] = [name for name in names if name not in PROJECT_MARKS]
    return found


@contextlib.contextmanager
def open_change(path: Path, lock: Path | None = None) -> Iterator[None]:
    """Hold the lock of a file, by default its own, while it is changed. Raises ConfigError if it cannot be written."""
    try:
        make_private(path.parent)
        with hold_lock(lock or path):
            yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def load_own(path: Path, problems: Sequence[Diagnostic] = (), bound: FileBound | None = None) -> dict[str, Any]:
    """Read a JSON file in order to change it; empty if there is none. Raises ConfigError if it has problems."""
    raw, found = load_json(path, bound=bound)
    if first := next(iter((*found, *problems)), None):
        raise ConfigError(f"{first.message}; repair or remove the file first")
    return raw or {}


def write_own(path: Path, content: Mapping[str, Any]) -> None:
    replace_own(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


def replace_own(path: Path, data: bytes) -> None:
    """Replace a file atomically; a new one is accessible to the user only."""
    is_new = not path.exists()
    replace_file(str(path), data, sync=True)
    if is_new and os.name == "posix":
        os.chmod(path, 0o600)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold `<file>.lock`, which is a directory, as in pi."""
    lock = path.with_name(f"{path.name}.lock")
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > STALE_AFTER_S:
                    lock.rmdir()
                    continue
            if time.monotonic() > deadline_s:
                raise ConfigError(f"{lock}: another program holds this lock; if none is running, remove it") from None
            time.sleep(0.02)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.rmdir()


class DecidedFolder:
    def __init__(self, name: str | None = None) -> None:
        """Without a name: the project of the working directory."""
        here = find_paths(".", os.environ)
        self._here = here
        self.path = here.project if name is None else _resolve(name, here)

    def decide(self, decision: bool | None) -> None:
        """Save a decision; None removes it. Raises UsageError or ConfigError."""
        if decision is not None and not self.path.is_dir():
            raise UsageError(f"{quote(str(self.path), 200)} is not a folder")
        save_decision(self._here, self.path, decision)

    def read(self, *, approve: bool | None) -> tuple[Path, Trust]:
        """Return the project of this folder and whether its files are used."""
        paths = find_paths(self.path, os.environ)
        return paths.project, load_settings(paths, os.environ, approve=approve).trust


def _resolve(name: str, here: Paths) -> Path:
    try:
        return expand_path(name, here.home, here.cwd, "trust").resolve()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{quote(name, 200)}: {getattr(error, 'strerror', None) or 'no such folder'}") from None
