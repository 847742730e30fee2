"""Kinds of calls that the user can allow together: edits in one folder, or commands with the same first words. Pure.

A kind is as narrow as its description: a call that is not certainly of a kind has none.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_line
from retinue.core.tool import list_aliases
from retinue.features.approvals.rules import CHAIN, SHELLS

FILE_TOOLS = list_aliases(("edit", "write"))
_PLAIN = late_pattern(r"[A-Za-z][A-Za-z0-9_:-]*")
_SCRIPTS = frozenset(("bun", "npm", "pnpm", "yarn"))
"""Programs whose `run` is followed by the name of one of the project's own scripts."""
_PROGRAMS = _SCRIPTS | {"cargo", "dotnet", "git", "go", "gradle", "just", "make", "mvn", "pip", "poetry", "rake", "uv"}
"""Programs whose first argument says what they do. After any other program it may be what is changed or run."""
_RUNNERS = frozenset(("run", "exec", "dlx", "x", "script", "tool"))
"""First arguments after which another program may follow."""


class CallKind(Struct, frozen=True):
    """Calls that are alike; two calls are of the same kind if their kinds are equal."""

    label: str
    """Follows `allow, and all`."""
    key: tuple[str, ...]

    @property
    def is_change(self) -> bool:
        """Whether the calls change a file."""
        return self.key[0] != "command"


def find_kind(names: Iterable[str], arguments: Mapping[str, Any], cwd: str) -> CallKind | None:
    """Return the kind of a call; None if only exactly the same call is certainly alike."""
    known = set(names)
    if not known.isdisjoint(FILE_TOOLS):
        return _find_files(arguments.get("path"), cwd)
    if not known.isdisjoint(SHELLS):
        return _find_commands(arguments.get("command"))
    return None


def _find_files(path: Any, cwd: str) -> CallKind | None:
    """Return the folder of a file, without those in it; outside of subfolders and in hidden ones, the file itself."""
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    real, root = os.path.realpath(os.path.join(cwd, os.path.expanduser(path))), os.path.realpath(cwd)
    shown = real.removeprefix(f"{root.rstrip('/')}/")
    folder = os.path.dirname(shown)
    if shown == real or not folder or any(part.startswith(".") for part in shown.split("/")):
        return CallKind(f"changes of {escape_line(shown, 200)}", ("file", real))
    return CallKind(f"changes of files directly in {escape_line(folder, 200)}/", ("folder", os.path.dirname(real)))


def _find_commands(command: Any) -> CallKind | None:
    if not isinstance(command, str) or CHAIN.search(command) is not None:
        return None
    words = command.split()
    count = 3 if words[1:2] == ["run"] and words[0] in _SCRIPTS else 2
    first = tuple(words[:count])
    if len(first) < count or first[0] not in _PROGRAMS or first[-1] in _RUNNERS:
        return None
    if not all(_PLAIN.fullmatch(word) for word in first):
        return None
    return CallKind(f'commands that start with "{" ".join(first)}"', ("command", *first))
