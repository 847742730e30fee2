"""The files a child is given: its prompt, and its task when that is too long for a command line. Gone when it ends."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_INLINE_CHARS = 8_000
"""A longer task goes through a file."""


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
    folder = Path(tempfile.mkdtemp(prefix="retinue-child-"))
    try:
        path = _write(folder / "prompt.md", prompt)
        if len(task) > MAX_INLINE_CHARS or task.startswith("@") or "\0" in task:
            yield Papers(path, (f"@{_write(folder / 'task.md', task)}",))
        else:
            # What looks like an option is none after two dashes.
            yield Papers(path, ("--", task) if task.startswith("-") else (task,))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, text: str) -> str:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(text.encode(errors="replace"))
    return str(path)
