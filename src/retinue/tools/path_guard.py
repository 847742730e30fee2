"""Restricts file tools to a territory: hidden files cannot be read, and nothing outside can be changed.

The file that was really opened is checked, not the requested name. All functions block.
"""

import errno
import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from retinue.core.errors import ToolFailed, quote
from retinue.core.launch import Territory
from retinue.core.pattern import late_pattern
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.survey import find_guard
from retinue.tools.paths import find_real_path

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""Nonblocking, because opening a pipe without a writer would otherwise hang."""
_ENDS = late_pattern(r"[ .]+(?=/|$)")
_PROCESS = late_pattern(r"/proc/[^/]+/(task/[^/]+/)?(environ|cmdline|mem|maps|auxv|stack)$")
"""Memory, environment and command lines of processes, including our own: they contain keys."""


def open_reading(path: str, shown: str, territory: Territory) -> int:
    """Open a file of any kind for reading. Raises OSError, or ToolFailed if it is hidden."""
    _check_hidden(os.path.normpath(path), shown, territory)
    handle = os.open(path, _READING)
    try:
        _check_hidden(find_real_path(handle, path), shown, territory)
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_real(path: str, shown: str, territory: Territory) -> int:
    """Open a real path for reading. A symbolic link in it was created since it was resolved, and is refused."""
    _check_hidden(path, shown, territory)
    parent, name = os.path.split(path)
    folder = open_beneath("/", parent.strip("/"))
    try:
        return os.open(name, _READING | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def open_folder(path: str, shown: str, territory: Territory) -> Iterator[int]:
    """Open a directory for listing. Raises OSError, or ToolFailed if it is hidden."""
    handle = os.open(path, _READING | os.O_DIRECTORY)
    try:
        _check_hidden(find_real_path(handle, path), shown, territory)
        yield handle
    finally:
        os.close(handle)


def find_ground(path: str, shown: str, territory: Territory) -> tuple[str, list[str]]:
    """Return the real path of a search root, and the hidden paths below it, relative to it.

    Raises ToolFailed if the root itself is hidden.
    """
    try:
        real = os.path.realpath(path)
    except OSError as error:  # a link that was just removed
        raise ToolFailed(f"{quote(shown, 200)} cannot be followed: {error.strerror}.") from None
    for each in (os.path.normpath(path), real):
        _check_hidden(each, shown, territory)
    inside = real.rstrip("/") + "/"
    return real, [each.removeprefix(inside) for each in territory.hidden if each.startswith(inside)]


def open_parent(path: str, shown: str, territory: Territory, *, make: bool = False) -> tuple[int, str, str]:
    """Open the directory of a file that is to be changed; return its descriptor, the file's name in it and its real
    path.

    With `make`, missing directories are created. Raises OSError, or ToolFailed if the file may not be changed.
    """
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    if not name:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    root = _find_root(real, shown, territory)
    for each in (os.path.normpath(path), real):
        _check_hidden(each, shown, territory)
    # All links were resolved above. A link that is found now was created since, and is refused.
    return open_beneath(root, folder[len(root.rstrip("/")) :].strip("/"), make=make), name, real


def _find_root(real: str, shown: str, territory: Territory) -> str:
    roots = territory.roots
    if roots is None:
        return "/"
    granted = next((root for root in territory.granted if _is_inside(real, root) and real != root), None)
    if granted is not None:
        return granted
    # The innermost root decides: places that protect a directory around it do not apply.
    root = max((root for root in roots if _is_inside(real, root) and real != root), key=len, default=None)
    if root is None:
        where = ", ".join(map(quote, roots[:3])) or "nowhere"
        raise ToolFailed(f"{quote(shown, 200)} is outside of where this agent may change files ({where}).")
    places = (*territory.protected, *territory.list_guarded())
    guards = (each for each in places if is_like(real, each) and not _is_inside(root, each))
    if guard := next(guards, "") or find_guard(real, root, territory.made):
        raise ToolFailed(
            f"{quote(shown, 200)} is protected: what is in {quote(guard)} takes effect outside of this agent's work. "
            "A person has to change it, or to name it in sandbox.writable of the user's own subagents.json."
        )
    return root


def find_fault(folder: str, paths: Iterable[str], territory: Territory) -> str:
    """Return why one of these files below a real folder may not be changed; empty if all may."""
    for path in paths:
        try:
            _find_root(os.path.join(folder, path), path, territory)
        except ToolFailed as error:
            return str(error)
    return ""


def is_hidden(path: str, territory: Territory) -> bool:
    """Whether a real path must not be read."""
    found = _find_around(fold_name(path), _index_places(territory.hidden))
    if found:
        shown = [place for place in territory.exposed if _is_inside(path, place)]
        if not all(any(_is_inside(place, each) for place in shown) for each in found):
            return True
    return path.startswith("/proc/") and _PROCESS.match(path) is not None


@lru_cache(maxsize=64)
def _index_places(places: tuple[str, ...]) -> dict[str, list[str]]:
    """Map folded names to places, cached because there are many places and every tool call checks them."""
    index: dict[str, list[str]] = {}
    for place in places:
        index.setdefault(fold_name(place).rstrip("/"), []).append(place)
    return index


def _find_around(path: str, index: dict[str, list[str]]) -> list[str]:
    """Return the places that are equal to a path or contain it."""
    found, end = list(index.get(path, ())), path.rfind("/")
    while end >= 0:
        found += index.get(path[:end], ())
        end = path.rfind("/", 0, end)
    return found


def _check_hidden(path: str, shown: str, territory: Territory) -> None:
    if is_hidden(path, territory):
        raise ToolFailed(f"{quote(shown, 200)} is hidden from agents: it may hold keys or other secrets.")


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_like(path: str, folder: str) -> bool:
    """Whether a path is inside a folder, also under a spelling that some file system treats as the same name."""
    return _is_inside(fold_name(path), fold_name(folder))


@lru_cache(maxsize=4096)
def fold_name(path: str) -> str:
    """Return one spelling for names that a file system may treat as equal (case, accents, invisible characters, …)."""
    text = path.casefold()
    if not text.isascii():
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return _ENDS.sub("", text)
