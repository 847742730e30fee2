"""Where a file may really lie that a name leads to: in the root it was found in, and never where secrets are.

What counts is the file that was opened, not the links that led to it. Must not know what the files are for.
"""

import os
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from retinue.core.territory import Territory
from retinue.sandbox.profile import Wishes, is_below, list_secrets
from retinue.settings.paths import Paths
from retinue.tools.path_guard import is_hidden


class Bound(Struct, frozen=True):
    """What the file behind a name has to be."""

    root: str
    """A real path; what lies outside is not read."""
    hidden: Territory
    owners: tuple[int, ...] = ()
    """The users whose files count; empty: anybody's."""
    is_users: bool = False
    """Whether the user keeps it: a file of one of the owners may then lie anywhere, and any file in the root."""

    def find_fault(self, path: Path, real: str, status: os.stat_result) -> str:
        """Why a file that was opened is not read, and what to do about it; empty when it is."""
        is_inside = is_below(real, (self.root,))
        if is_hidden(real, self.hidden):
            return f"leads to {real}, which is hidden from agents since it may hold secrets; put another file there"
        if not is_inside and not self.is_users:
            return f"leads to {real}, outside of {self.root}; put the file itself there instead of a link"
        is_free = not self.owners or (is_inside and self.is_users)
        if not is_free and not {status.st_uid, os.lstat(path).st_uid}.issubset(self.owners):
            return "belongs to another user; make it yours (chown), or put a copy into your agent directory"
        return ""


def bind_project(paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For files of the project; `hidden` is what the user hides beside the usual."""
    return Bound(os.path.realpath(paths.project), list_hidden(paths, hidden))


def bind_folder(folder: Path, paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For files of a folder that is not known to be the user's: of nobody else."""
    return Bound(os.path.realpath(folder), list_hidden(paths, hidden), (os.geteuid(),))


def bind_user(paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For the user's own files, which programs for dot files link to wherever they keep them."""
    return Bound(os.path.realpath(paths.agent_dir), list_hidden(paths, hidden), (os.geteuid(), 0), is_users=True)


@lru_cache(maxsize=16)  # for every session that is opened, and always the same
def list_hidden(paths: Paths, hidden: tuple[str, ...] = ()) -> Territory:
    """What agents do not see."""
    told = (*hidden, *paths.withheld)
    wishes = Wishes(secrets=told, home=str(paths.home or ""), agent_dir=str(paths.agent_dir))
    return Territory(hidden=list_secrets(wishes), exposed=tuple(map(os.path.realpath, paths.exposed)))
