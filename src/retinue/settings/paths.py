"""Finds the home and agent directories, the project, the session directory and the files of MCP servers.

Looks at names only: reads no file and creates nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.core.environment import EXPOSED, PASSWORD_FILES, WORKER_DIR
from retinue.core.errors import ConfigError, UsageError, quote
from retinue.sandbox.stubs import is_stub

_OWN = (".pi", ".agents", ".codingcode")
_FOREIGN = (
    *(".claude/agents", ".claude/commands", ".claude/skills", ".codex/agents", ".opencode/agents", ".opencode/agent"),
    *(".opencode/opencode.json", ".opencode/opencode.jsonc", "opencode.json", "opencode.jsonc"),
    *(".cursor/agents", ".github/agents", ".gemini/agents"),
)
"""What other tools keep in a project and we read."""
CONFIG_FOLDERS = (*_OWN, *dict.fromkeys(name.partition("/")[0] for name in _FOREIGN))
_IN_PI = (
    "settings.json",
    "mcp.json",
    "subagents.json",
    "agents",
    "extensions",
    "skills",
    "prompts",
    "themes",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
    "agent-tool-description.md",
)
PROTECTED = (*(f".pi/{name}" for name in _IN_PI), ".agents", ".codingcode", *_FOREIGN)
"""Files of a clone that can change what an agent is, does or starts."""
PROJECT_MARKS = (*_OWN, ".git")


class Paths(Struct, frozen=True):
    cwd: Path
    """Absolute, links resolved."""
    project: Path
    """`cwd`, or its nearest ancestor below the home directory that is marked as a project."""
    agent_dir: Path
    home: Path | None = None
    withheld: tuple[str, ...] = ()
    """Paths that no agent of this process may see: a worker's folder, database password files."""
    exposed: tuple[str, ...] = ()
    """Exceptions from the hidden paths."""
    configs: tuple[str, ...] = CONFIG_FOLDERS
    """The project's configuration folders that existed at the start and are not links; no others are read."""

    @property
    def own_dir(self) -> Path:
        """The folder of retinue's own files beside pi's."""
        return self.agent_dir / "retinue"

    @property
    def copies_dir(self) -> Path:
        """Copies of repositories that runs work in."""
        return self.own_dir / "worktrees"

    @property
    def user_settings(self) -> Path:
        return self.agent_dir / "settings.json"

    @property
    def project_settings(self) -> Path:
        return self.project / ".pi" / "settings.json"

    @property
    def models_file(self) -> Path:
        return self.agent_dir / "models.json"

    @property
    def auth_file(self) -> Path:
        return self.agent_dir / "auth.json"

    @property
    def trust_file(self) -> Path:
        return self.agent_dir / "trust.json"


def find_paths(cwd: str | Path, environment: Mapping[str, str]) -> Paths:
    """Find the directories for a run that starts in `cwd`. Raises UsageError or ConfigError if one is unusable."""
    here = find_cwd(cwd)
    home = find_home(environment)
    agent_dir = find_agent_dir(environment, home)
    if os.path.lexists(agent_dir) and not agent_dir.is_dir():
        found = quote(str(agent_dir), 200)
        raise ConfigError(f"agent directory {found}: not a directory; set PI_CODING_AGENT_DIR to one")
    named = (environment.get(name, "") for name in (WORKER_DIR, *PASSWORD_FILES))
    withheld = tuple(os.path.abspath(os.path.expanduser(path)) for path in named if path)
    exposed = tuple(filter(os.path.isabs, environment.get(EXPOSED, "").split("\n")))
    project = find_project(here, home)
    return Paths(here, project, agent_dir, home, withheld, exposed, find_configs(project))


def find_cwd(cwd: str | Path) -> Path:
    """Return the working directory, absolute and without links. Raises UsageError."""
    try:
        here = Path(cwd).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such directory"
        raise UsageError(f"working directory {quote(str(cwd))}: {reason.lower()}") from None
    if not here.is_dir():
        raise UsageError(f"working directory {quote(str(cwd))}: not a directory")
    if not os.access(here, os.R_OK | os.X_OK):
        raise UsageError(f"working directory {quote(str(cwd))}: no permission to enter it")
    return here


def find_home(environment: Mapping[str, str]) -> Path | None:
    """Return `$HOME` if it is an absolute path, else what the system says, else None."""
    home = environment.get("HOME", "")
    if not os.path.isabs(home) or "\0" in home:
        try:
            import pwd

            home = pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, KeyError, AttributeError):
            home = os.path.expanduser("~") if os.name == "nt" else ""
    return Path(home) if os.path.isabs(home) else None


def find_agent_dir(environment: Mapping[str, str], home: Path | None) -> Path:
    """Return `$PI_CODING_AGENT_DIR`, else `~/.pi/agent`. Raises ConfigError without a home directory."""
    if chosen := environment.get("PI_CODING_AGENT_DIR", ""):
        return expand_path(chosen, home, Path.cwd(), "PI_CODING_AGENT_DIR")
    if home is None:
        raise ConfigError("HOME is not set and this user has no home directory; set HOME or PI_CODING_AGENT_DIR")
    return home / ".pi" / "agent"


def find_project(cwd: Path, home: Path | None) -> Path:
    """Return the project of `cwd`, searching only below the home directory."""
    top = _resolve(home) if home is not None else None
    for folder in (cwd, *cwd.parents):
        if folder == top:
            break
        if any(has_entry(folder / mark) for mark in PROJECT_MARKS):
            return folder
    return cwd


def find_configs(project: Path) -> tuple[str, ...]:
    """Return the project's configuration folders that hold configuration and are not links."""
    found = {name.partition("/")[0] for name in PROTECTED if has_entry(project / name)}
    return tuple(name for name in CONFIG_FOLDERS if name in found and not (project / name).is_symlink())


def has_entry(path: Path) -> bool:
    """Return whether a path exists; a placeholder of the sandbox does not count."""
    return os.path.lexists(path) and not is_stub(str(path))


def find_session_dir(
    paths: Paths, environment: Mapping[str, str], *, flag: str | None = None, setting: str | None = None
) -> Path:
    """Return the session directory: `--session-dir`, the environment, the setting, or pi's default."""
    chosen = (
        (flag, "--session-dir"),
        (environment.get("PI_CODING_AGENT_SESSION_DIR"), "PI_CODING_AGENT_SESSION_DIR"),
        (setting, "sessionDir"),
    )
    for value, origin in chosen:
        if value:
            return expand_path(value, paths.home, paths.cwd, origin)
    # pi's rule, so that both programs find the same files.
    name = str(paths.cwd).removeprefix("/")
    for char in "/\\:":
        name = name.replace(char, "-")
    return paths.agent_dir / "sessions" / f"--{name}--"


def expand_path(text: str, home: Path | None, base: Path, origin: str) -> Path:
    """Expand a user's path: `~` is the home directory, relative paths start at `base`. Raises ConfigError."""
    if "\0" in text:
        raise ConfigError(f"{origin}: {quote(text)} contains a NUL character; expected a path")
    if text == "~" or text.startswith("~/"):
        if home is None:
            raise ConfigError(f"{origin}: {quote(text)} needs a home directory and HOME is not set")
        return home / text[2:]
    return Path(os.path.normpath(base / text))


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def list_files(paths: Paths, *, trusted: bool) -> list[tuple[Path, Literal["user", "project"]]]:
    """List the files that may define MCP servers, in order of precedence."""
    found: list[tuple[Path, Literal["user", "project"]]] = []
    if trusted and paths.project != paths.home:
        files = (".pi/mcp.json", ".codingcode/mcp.yaml", ".codingcode/mcp.yml")
        found += [(paths.project / name, "project") for name in files if name.partition("/")[0] in paths.configs]
    base = (paths.home or paths.agent_dir) / ".codingcode"
    return [*found, *((path, "user") for path in (paths.agent_dir / "mcp.json", base / "mcp.yaml", base / "mcp.yml"))]


def has_files(paths: Paths, *, trusted: bool) -> bool:
    """Return whether any such file exists; usually none does."""
    return any(os.path.lexists(path) for path, _ in list_files(paths, trusted=trusted))
