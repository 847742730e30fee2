"""Explain errors of commands that the sandbox may have caused, each once per run.

Only text: the kernel enforces the restrictions, whatever the output says.
"""

import os
from collections.abc import Iterator, Sequence

from retinue.core.errors import quote
from retinue.sandbox.profile import Profile
from retinue.sandbox.stubs import is_stub

_WRITING = ("Read-only file system", "EROFS", "Device or resource busy")
_REFUSED = ("Operation not permitted", "Permission denied", "EPERM", "EACCES")
_NETWORK = ("Network is unreachable", "Could not resolve", "name resolution", "ENOTFOUND", "EAI_AGAIN")


class Hints:
    def __init__(self, profile: Profile, *, has_mounts: bool) -> None:
        """`has_mounts`: a refused write fails as on a read-only file system, not with a permission error."""
        self._profile = profile
        self._has_mounts = has_mounts
        self._marks = _WRITING if has_mounts else (*_WRITING, *_REFUSED)
        self._told: set[str] = set()

    def explain(self, output: str, closed: Sequence[str] = ()) -> str:
        """Return a hint for a failed command's output; empty if there is none or it was given before.

        `closed` are directories that are protected as a whole.
        """
        for hint in self._list(output, closed):
            if hint not in self._told:
                self._told.add(hint)
                return hint
        return ""

    def _list(self, output: str, closed: Sequence[str]) -> Iterator[str]:
        profile = self._profile
        is_refused = any(mark in output for mark in self._marks)
        is_cut_off = any(mark in output for mark in _NETWORK)
        if profile.is_readonly:
            if is_refused or is_cut_off or any(mark in output for mark in _REFUSED):
                yield "this run is read-only: commands write in $TMPDIR only, and there is no network"
            return
        place = os.path.join(profile.workspace, ".git")
        if is_refused and ".git" in output and place in profile.protected and _is_missing(place):
            yield (
                f"{quote(profile.workspace, 200)} is not a repository, and agents cannot create one: run git init "
                f"there yourself, or name {quote(place, 200)} in sandbox.writable of the user's subagents.json"
            )
        elif is_refused:
            kept = "; hooks, configuration and agent files there stay as they are" if self._has_mounts else ""
            if closed:
                kept += f", and all in {', '.join(quote(path, 200) for path in closed[:3])}, which is too large to scan"
            yield f"commands write below {quote(profile.workspace, 200)} and in $TMPDIR{kept}; see retinue doctor"
        if is_cut_off and not profile.network:
            yield "commands have no network: sandbox.network is off in the user's subagents.json"


def _is_missing(path: str) -> bool:
    return is_stub(path) or not os.path.lexists(path)
