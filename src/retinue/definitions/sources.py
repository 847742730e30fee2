"""Where agent files lie: the roots of each dialect and level, for one working directory.

Looks at names only. Must not read a file, and not know what is in one.
"""

import os
from pathlib import Path

from msgspec import Struct

from retinue.core.definition import Dialect, Source

MARKDOWN = (".md", ".markdown")
_PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "builtin")


class Root(Struct, frozen=True):
    """One directory of agent files."""

    path: str
    dialect: Dialect
    source: Source
    suffixes: tuple[str, ...] = (".md",)
    boundary: str = ""
    """The directory in which its files must really lie; empty: anywhere, if they are the user's own."""
    hidden: tuple[str, ...] = ()
    """Real paths of what is not read, whatever link leads there."""


class Places(Struct, frozen=True):
    """The directories that decide which agent files there are."""

    project: Path
    agent_dir: Path
    home: Path | None = None
    configs: tuple[str, ...] = (".pi", ".agents", ".codingcode")
    """The project's configuration folders that may be read."""
    hidden: tuple[str, ...] = ()
    """Real paths of what no agent sees."""


def find_roots(places: Places, nearest: str) -> list[Root]:
    """All roots, the ones that win first: project, user, builtin; inside one level pi, codingcode, sticky.

    `nearest` is the project's own directory of agents, as `find_nearest` gives it.
    """
    project, agent_dir, home, hidden = str(places.project), str(places.agent_dir), places.home, places.hidden
    user = [Root(os.path.join(agent_dir, "agents"), "pi", "user", MARKDOWN, hidden=hidden)]
    if home is not None:
        user.append(Root(os.path.join(home, ".codingcode", "agents"), "codingcode", "user", hidden=hidden))
    user.append(Root(os.path.join(agent_dir, "subagents"), "sticky", "user", hidden=hidden))
    own = [make_project_root(nearest, places)]
    if ".codingcode" in places.configs:
        own.append(make_project_root(os.path.join(project, ".codingcode", "agents"), places))
    taken = {root.path for root in user}
    builtin = [
        Root(os.path.join(_PACKAGED, "pi"), "pi", "builtin"),
        Root(os.path.join(_PACKAGED, "codingcode"), "codingcode", "builtin"),
        Root(os.path.join(_PACKAGED, "sticky"), "sticky", "builtin"),
    ]
    # At home the user's own directories would otherwise count as the project's, too.
    return [root for root in own if root.path and root.path not in taken] + user + builtin


def make_project_root(folder: str, places: Places) -> Root:
    """A folder of the project's agents; where it lies says how its files are read."""
    is_codingcode = os.path.basename(os.path.dirname(folder)) == ".codingcode"
    dialect: Dialect = "codingcode" if is_codingcode else "pi"
    suffixes = (".md",) if is_codingcode else MARKDOWN
    return Root(folder, dialect, "project", suffixes, str(places.project), places.hidden)


def find_nearest(places: Places) -> str:
    """The project's `.pi/agents`, else its `.agents`; empty when it has neither, or is the home directory."""
    if places.project == places.home:
        return ""
    for config, name in ((".pi", os.path.join(".pi", "agents")), (".agents", ".agents")):
        if config in places.configs and os.path.isdir(os.path.join(places.project, name)):
            return os.path.join(places.project, name)
    return ""


def is_packaged(path: str) -> bool:
    """Whether a file is one of ours."""
    return path.startswith(_PACKAGED + os.sep)
