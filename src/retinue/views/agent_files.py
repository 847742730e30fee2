"""The files of a folder, by name: what git would add to it, or a bounded walk where there is no repository.

Nothing outside of the folder is looked at and no link is followed.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

MOST_FILES = 50_000
WALK_S = 5.0
_SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", ".mypy_cache", ".tox"})


async def list_files(folder: Path, *, most: int = MOST_FILES) -> list[str]:
    """Relative paths, nearest first; directories end with a slash. What git ignores is left out."""
    from retinue.tools.git import run_git

    listed = await run_git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"], folder)
    return await asyncio.to_thread(_sort_listed, folder, listed.fields, most) if listed.ok else await walk(folder, most)


async def walk(folder: Path, most: int) -> list[str]:
    """All files below a folder, but for those that nobody means."""
    return await asyncio.to_thread(lambda: _arrange(_walk(folder, most)))


def _sort_listed(folder: Path, names: list[str], most: int) -> list[str]:
    # What was deleted stays in git's index for a while, and a conflict has a name several times.
    names = list(dict.fromkeys(names))[:most]
    return _arrange(name for name in names if os.path.lexists(folder / name))


def _walk(folder: Path, most: int) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + WALK_S
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        base = os.path.relpath(place, folder)
        found += [name if base == "." else f"{base}/{name}" for name in sorted(files)]
        if len(found) >= most or time.monotonic() > end_s:
            break
    return found[:most]


def _arrange(names: Iterable[str]) -> list[str]:
    files = list(names)
    folders: dict[str, None] = {}
    for name in files:
        at = name.find("/")
        while at >= 0:
            folders[name[: at + 1]] = None
            at = name.find("/", at + 1)
    return sorted(dict.fromkeys([*files, *folders]), key=lambda name: (name.rstrip("/").count("/"), name))
