"""Where MCP servers may be configured. Looks at names only: most have no such file, and must not pay for more."""

import os
from pathlib import Path
from typing import Literal

from retinue.settings.paths import Paths


def list_files(paths: Paths, *, trusted: bool) -> list[tuple[Path, Literal["user", "project"]]]:
    """Where servers may be configured, what counts most first."""
    homes: list[tuple[Path, Path, Literal["user", "project"]]] = []
    if trusted and paths.project != paths.home:
        homes.append((paths.project / ".pi", paths.project, "project"))
    homes.append((paths.agent_dir, paths.home or paths.agent_dir, "user"))
    return [
        (path, level)
        for own, base, level in homes
        for path in (own / "mcp.json", base / ".codingcode" / "mcp.yaml", base / ".codingcode" / "mcp.yml")
    ]


def has_files(paths: Paths, *, trusted: bool) -> bool:
    """Whether there is anything to read; most have nothing."""
    return any(os.path.lexists(path) for path, _ in list_files(paths, trusted=trusted))
