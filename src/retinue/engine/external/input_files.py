"""Temporary files for a child process: its prompt, and its task if that is too long for a command line."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MAX_INLINE_CHARS = 8_000
"""A longer task is passed in a file."""
STALE_S = 3600.0
_PREFIX = "retinue-child-"


@dataclass(frozen=True, slots=True)
class InputFiles:
    prompt: str
    """Path of the file with the system prompt."""
    words: tuple[str, ...]
    """The end of the command line: the task, or `@` and its file."""


@contextmanager
def open_input_files(prompt: str, task: str) -> Iterator[InputFiles]:
    """Write the files, readable by this user only, and remove them on exit."""
    remove_stale()
    task = task.encode(errors="replace").decode()  # command lines are bytes
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        path = _write(folder / "prompt.md", prompt)
        if len(task) > MAX_INLINE_CHARS or task.startswith("@") or "\0" in task:
            yield InputFiles(path, (f"@{_write(folder / 'task.md', task)}",))
        else:
            # After `--` nothing is an option.
            yield InputFiles(path, ("--", task) if task.startswith("-") else (task,))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale() -> None:
    """Remove old files of processes that were killed."""
    now_s, own = time.time(), os.getuid()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            pid = entry.name.removeprefix(_PREFIX).partition("-")[0]
            if not entry.name.startswith(_PREFIX) or not pid.isdigit() or not entry.is_dir(follow_symlinks=False):
                continue
            known = entry.stat(follow_symlinks=False)
            # The age is checked too, because the process may live in another PID namespace.
            if known.st_uid == own and now_s - known.st_mtime > STALE_S and not _is_running(int(pid)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _write(path: Path, text: str) -> str:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(text.encode(errors="replace"))
    return str(path)
