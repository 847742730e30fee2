"""The files a child is given: its prompt, and its task when that is too long for a command line. Gone when it ends."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MAX_INLINE_CHARS = 8_000
"""A longer task goes through a file."""
STALE_S = 3600.0
_PREFIX = "retinue-child-"


@dataclass(frozen=True, slots=True)
class Papers:
    """What of a child's words lies in files."""

    prompt: str
    """Path of the file with the system prompt."""
    words: tuple[str, ...]
    """The end of the command line: the task, or the file it is in."""


@contextmanager
def open_papers(prompt: str, task: str) -> Iterator[Papers]:
    """Write the files where only this user can read them, and remove them in any case."""
    remove_stale()
    task = task.encode(errors="replace").decode()  # a command line is bytes
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        path = _write(folder / "prompt.md", prompt)
        if len(task) > MAX_INLINE_CHARS or task.startswith("@") or "\0" in task:
            yield Papers(path, (f"@{_write(folder / 'task.md', task)}",))
        else:
            # What looks like an option is none after two dashes.
            yield Papers(path, ("--", task) if task.startswith("-") else (task,))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale() -> None:
    """Remove what processes that were killed have left behind long ago."""
    now_s, own = time.time(), os.getuid()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            pid = entry.name.removeprefix(_PREFIX).partition("-")[0]
            if not entry.name.startswith(_PREFIX) or not pid.isdigit() or not entry.is_dir(follow_symlinks=False):
                continue
            known = entry.stat(follow_symlinks=False)
            # By age, too: the process may live where its number means another one.
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
