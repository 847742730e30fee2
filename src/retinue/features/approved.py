"""What an approval of a program is bound to beside its words: what the files hold that it names and the project brings.

Words alone would not do: whoever may write in the project decides what the program does that they name.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 5_000_000
"""Of one file; a longer one counts by its size and time."""
_LONGEST = 1024


def digest_files(words: Iterable[str], folder: Path, project: Path) -> dict[str, str]:
    """The files below a project that words of a command line name, seen from a folder, each with what it holds."""
    found = {}
    for word in words:
        path = find_file(word, folder, project)
        if path is not None:
            found[word] = digest_file(path)
    return found


def find_file(word: str, folder: Path, project: Path) -> Path | None:
    """The file of a project that a word means; None when it means none."""
    # `--config=x` names a file too.
    for text in (word, word.partition("=")[2]):
        if not text or len(text) >= _LONGEST or "\0" in text:
            continue
        path = Path(os.path.realpath(folder / text))
        if path.is_relative_to(os.path.realpath(project)) and path.is_file():
            return path
    return None


def digest_file(path: Path) -> str:
    """What a file holds, as a number; or why that cannot be told."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return "no file"
        if found.st_size > MAX_BYTES:
            return f"{found.st_size} bytes of {found.st_mtime_ns}"
        return hashlib.sha256(file.read()).hexdigest()
