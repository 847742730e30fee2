"""Where MCP servers may be configured. Looks at names only: most have no such file, and must not pay for more."""

import os
from pathlib import Path
from typing import Literal

from retinue.settings.paths import Paths


def list_files(paths: Paths, *, trusted: bool) -> list[tuple[Path, Literal["user", "project"]]]:
    """Where servers may be configured, what counts most first."""
    found: list[tuple[Path, Literal["user", "project"]]] = []
    if trusted and paths.project != paths.home:
        files = (".pi/mcp.json", ".codingcode/mcp.yaml", ".codingcode/mcp.yml")
        found += [(paths.project / name, "project") for name in files if name.partition("/")[0] in paths.configs]
    base = (paths.home or paths.agent_dir) / ".codingcode"
    return [*found, *((path, "user") for path in (paths.agent_dir / "mcp.json", base / "mcp.yaml", base / "mcp.yml"))]


def has_files(paths: Paths, *, trusted: bool) -> bool:
    """Whether there is anything to read; most have nothing."""
    return any(os.path.lexists(path) for path, _ in list_files(paths, trusted=trusted))
