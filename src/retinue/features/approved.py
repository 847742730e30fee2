"""Bind the approval of a program to the content of the project files on its command line.

The command line alone is not enough: anyone who can write in the project can change what those files do.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from retinue.core.pattern import late_pattern

MAX_BYTES = 5_000_000
"""For one file; a larger file is identified by location, size and change time, which programs cannot set."""
_LONGEST = 1024
_LONGEST_LINE = 64 * 1024
_MODULE = (".py", "/__main__.py", "/__init__.py")
_MOST_PIECES = 50
_SHELL = late_pattern(r"[\s;&|()<>{}`'\"$]+")
"""Separators between words for a shell."""


class ProjectPlace(Struct, frozen=True):
    """Where a project is, and where its programs are started."""

    project: Path
    cwd: Path
    home: Path | None = None
    spared: tuple[Path, ...] = ()
    """Folders in the project that no agent can write; needed if the project is the home directory."""

    def find_files(self, command: str, args: Iterable[str], folder: Path) -> dict[str, Path]:
        """Return the project files that a command line names, by word; the command itself is relative to `folder`."""
        found: dict[str, Path] = {}
        # A bare name is searched on the PATH, never in the project.
        wanted = [(command, folder)] if os.sep in command else []
        for before, word in pairwise(("", *args)):
            # A word may be a whole shell command, as in `sh -c`, and change the directory first.
            pieces = _SHELL.split(word[:_LONGEST_LINE])[:_MOST_PIECES] if " " in word else []
            places = [self.cwd, *(self.cwd / each for each in pieces if each and self._has_folder(each))]
            wanted += [(text, place) for text in (word, *pieces) for place in places]
            # `python -m name` imports from the working directory.
            module = word if before == "-m" else word.removeprefix("-m") if word.startswith("-m") else ""
            wanted += [(module.replace(".", "/") + end, self.cwd) for end in _MODULE if module]
        for text, start in wanted:
            path = self._find_file(text, start)
            if path is not None:
                found[text if found.get(text, path) == path else str(path)] = path
        return found

    def _has_folder(self, name: str) -> bool:
        path = Path(os.path.realpath(self.cwd / name)) if "\0" not in name and len(name) < _LONGEST else Path("/")
        return self._has(path) and path.is_dir()

    def _find_file(self, word: str, start: Path) -> Path | None:
        # `--config=x` names a file, too.
        for text in (word, word.partition("=")[2]):
            if not text or len(text) >= _LONGEST or "\0" in text:
                continue
            name = text[2:] if self.home is not None and text.startswith("~/") else text
            path = Path(os.path.realpath((start if name is text or self.home is None else self.home) / name))
            if self._has(path) and path.is_file():
                return path
        return None

    def _has(self, path: Path) -> bool:
        inside = path.is_relative_to(os.path.realpath(self.project))
        return inside and not any(path.is_relative_to(os.path.realpath(each)) for each in self.spared)


def list_scripts(argv: Iterable[str]) -> list[str]:
    """Return the files on a command line, which a sandbox must show."""
    return [word for word in argv if os.path.isabs(word) and os.path.isfile(word)]


def digest_files(files: Mapping[str, Path]) -> dict[str, str]:
    return {word: digest_file(path) for word, path in files.items()}


def find_change(files: Mapping[str, str]) -> str:
    """Return the path of the first file whose digest has changed; empty if none has."""
    return next((path for path, digest in files.items() if digest_file(Path(path)) != digest), "")


def digest_file(path: Path) -> str:
    """Return a digest of a file's content, or a text that says why it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return "no file"
        if found.st_size > MAX_BYTES:
            return f"{found.st_size} bytes at {found.st_dev}:{found.st_ino} of {found.st_ctime_ns}"
        return hashlib.sha256(file.read()).hexdigest()
