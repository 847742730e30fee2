"""The MCP servers and hooks that are configured here, one by one, and whether each may be started. Starts none."""

import os
from typing import Literal, NamedTuple

from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths
from retinue.settings.request import Request

Kind = Literal["mcp", "hook"]


class Entry(NamedTuple):
    """One of them."""

    name: str
    state: str
    """`ready`, `disabled`, `unapproved` or `changed`."""
    about: str
    """What would be started, or reached."""
    path: str
    """The file that names it."""
    is_projects: bool
    """The project's, not the user's own."""
    needs_consent: bool
    """The user decides about it: the project's, or one that runs files of the project."""


def list_entries(request: Request, kind: Kind) -> tuple[list[Entry], list[str]]:
    """All of a kind, and what is wrong with their files."""
    paths = find_paths(".", os.environ)
    trusted = load_settings(paths, os.environ, approve=request.approve).trust.trusted
    if kind == "mcp":
        from retinue.settings.mcp import load_servers

        servers = load_servers(paths, os.environ, trusted=trusted)
        rows = [
            Entry(each.name, item.state, each.place, str(each.path), each.level != "user", item.is_bound)
            for item in servers.found
            for each in (item.server,)
        ]
        return rows, [problem.message for problem in servers.diagnostics]
    from retinue.settings.hooks import load_hooks
    from retinue.settings.switches import load_switches

    own, project = load_switches(paths, trusted=trusted)[0].disabled_hooks
    hooks = load_hooks(paths, trusted=trusted, disabled=own, muted=project)
    found = [
        Entry(each.name, item.state, each.describe(), str(each.path), each.scope == "project", item.is_bound)
        for item in hooks.found
        for each in (item.spec,)
    ]
    return found, [problem.message for problem in hooks.diagnostics]
