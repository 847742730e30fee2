"""Approval of a project's servers, hooks, files and extensions, each shown to the user in full.

Must not know what the entries mean; a server and a hook describe themselves.
"""

import json
import os
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.consent import Consents, Kind, State, describe_content, load_consents, save_consent
from retinue.settings.files import bind_project, load_json
from retinue.settings.hooks import load_hooks, load_profile
from retinue.settings.layers import load_settings
from retinue.settings.mcp import load_servers
from retinue.settings.paths import Paths, expand_path, find_paths
from retinue.settings.roster import open_registry
from retinue.settings.subagents import load_subagents

MAX_BYTES = 1 << 20
AGENT_FOLDERS = (".pi/agents", ".agents", ".codingcode/agents")
SETTINGS_FILE = os.path.join(".pi", "subagents.json")
COMMANDS = ("worktree.setup", "verify", "landing.verify")
"""Keys of subagents.json whose value is a command."""
_WORDS = {
    "ready": "approved",
    "disabled": "disabled",
    "unapproved": "not approved",
    "changed": "changed since it was approved",
}


class Candidate(Struct, frozen=True):
    """An entry to be decided about."""

    kind: Kind
    name: str
    path: str
    state: State
    entry: Any
    """Everything that an approval is bound to."""
    owner: Paths
    """Where the approval is stored."""
    text: str | None = None
    """The content of a file; None for an entry of a file."""


class EntryApproval:
    """The user's decision about one MCP server, hook, extension or agent file."""

    def __init__(
        self,
        name: str,
        *,
        kind: Literal["mcp", "hook", "extension", "file", "command"],
        approve: bool | None = None,
    ) -> None:
        """Raises UsageError if the project has no such entry or its files may not be read."""
        self._kind = kind
        self._name = name
        self._paths = find_paths(".", os.environ)
        self._trust = load_settings(self._paths, os.environ, approve=approve).trust
        self._found = self._find()

    def decide(self, consent: bool) -> None:
        """Approve the entry as it is now, or withdraw the approval. Raises ConfigError."""
        found = self._found
        save_consent(found.owner, found.kind, found.name, found.entry if consent else None)
        self._found = self._find()

    def describe(self) -> tuple[str, list[str]]:
        """Return a headline and the lines of the file or entry; of a changed entry also its diff since the approval."""
        found = self._found
        line = f"{found.name} in {found.path}: {_WORDS[found.state]}"
        if found.text is not None:
            return line, found.text.splitlines()
        before = load_consents(found.owner, found.kind)[0].get(found.name)
        now = _render(found.entry)
        if found.state != "changed" or before is None:
            return line, now
        from difflib import unified_diff

        return line, [*unified_diff(_render(before.entry), now, "approved", "now", lineterm=""), "", *now]

    @property
    def needs_decision(self) -> bool:
        return self._found.state in ("unapproved", "changed")

    def _find(self) -> Candidate:
        """Return the entry as it is now. Raises UsageError."""
        if self._kind == "file":
            return self._find_file()
        path = self._find_path() if self._kind == "extension" else None
        if not self._trust.trusted and (path is None or _is_inside(path, self._paths.project)):
            folder = quote(str(self._paths.project), 200)
            raise UsageError(f"{folder} is not trusted, so its files are not read; first: retinue trust {folder} --yes")
        if path is not None:
            path = Path(os.path.realpath(path))
            return _read_candidate(find_owner(self._paths, path), "extensions", str(path), path)
        if self._kind == "command":
            return self._find_command()
        return self._find_hook() if self._kind == "hook" else self._find_server()

    def _find_path(self) -> Path:
        return expand_path(self._name, self._paths.home, self._paths.cwd, f"--{self._kind}")

    def _find_file(self) -> Candidate:
        """Return an agent or settings file, which may be used although its project is not trusted."""
        path = self._find_path()
        name = os.path.relpath(path, self._paths.project)
        if not is_agent_file(self._paths, path) and name != SETTINGS_FILE:
            places = ", ".join(AGENT_FOLDERS)
            text = f"is neither an agent file of this project ({places}) nor {SETTINGS_FILE}"
            raise UsageError(f"{quote(self._name, 200)} {text}")
        return _read_candidate(self._paths, "files", name, path)

    def _find_command(self) -> Candidate:
        """Return a command in the project's subagents.json, by its key."""
        if self._name not in COMMANDS:
            return self._find_agent_command()
        path = self._paths.project / SETTINGS_FILE
        found: Any = load_json(path, bound=bind_project(self._paths))[0]
        for part in self._name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        listed = found if isinstance(found, list) and found else [found]
        if not all(isinstance(each, str) and each.strip() for each in listed):
            raise UsageError(f"{quote(str(path), 200)} has no command {self._name}")
        named = [each.strip() for each in listed]
        entry: Any = named[0] if self._name == "worktree.setup" else named
        state = Consents(self._paths, "commands", []).judge(self._name, entry)
        return Candidate("commands", self._name, str(path), state, entry, self._paths)

    def _find_agent_command(self) -> Candidate:
        """Return the commands that verify the results of one of the project's agents, named `agent/verify`."""
        agent, slash, key = self._name.rpartition("/")
        if not slash or key != "verify":
            raise UsageError(f"--command {quote(self._name)}: expected one of {', '.join(COMMANDS)}, AGENT/verify")
        own = [each for each in self._list_agents() if each.name == agent and each.source == "project" and each.verify]
        if not own:
            raise UsageError(f"this project has no agent {quote(agent)} whose file has the field verify")
        entry = list(own[0].verify)
        state = Consents(self._paths, "commands", []).judge(self._name, entry)
        return Candidate("commands", self._name, own[0].path, state, entry, self._paths)

    def _list_agents(self) -> tuple[Definition, ...]:
        crew = load_subagents(self._paths, os.environ, trusted=True).settings
        return open_registry(self._paths, crew, trusted=True).read().definitions

    def _find_hook(self) -> Candidate:
        """Return the project's hook of that name, or the user's if it runs project files.

        Hooks of a project's agents are named `agent/hook`.
        """
        agents = self._list_agents()
        known = [*load_hooks(self._paths, trusted=True).found]
        known += [item for each in agents if each.hooks for item in load_profile(self._paths, each, trusted=True).found]
        same = [item for item in known if item.spec.name == self._name]
        found = next((item for item in same if item.is_bound), None)
        if found is not None:
            return Candidate("hooks", found.spec.name, found.spec.path, found.state, found.entry, self._paths)
        if same:
            raise UsageError(f"hook {quote(self._name)} is your own: it needs no approval")
        raise UsageError(self._explain_missing("hook", [item.spec.name for item in known if item.is_bound]))

    def _find_server(self) -> Candidate:
        """Return the project's server of that name, or the user's if it runs project files."""
        servers = load_servers(self._paths, os.environ, trusted=True)
        found = servers.find(self._name)
        if found is None:
            broken = next((each.message for each in servers.diagnostics if each.field.split(".")[0] == self._name), "")
            names = [item.server.name for item in servers.found if item.server.level == "project"]
            raise UsageError(broken or self._explain_missing("MCP server", names))
        if not found.is_bound:
            raise UsageError(f"server {quote(self._name)} is your own ({found.server.path}): it needs no approval")
        return Candidate("mcp", found.server.name, found.server.path, found.state, found.entry, self._paths)

    def _explain_missing(self, noun: str, names: list[str]) -> str:
        listed = f"; it has: {', '.join(names)}" if names else ""
        return f"this project has no {noun} {quote(self._name)}{suggest(self._name, names)}{listed}"


def _render(entry: Any) -> list[str]:
    return json.dumps(entry, indent=2, ensure_ascii=True).splitlines()


def _read_candidate(owner: Paths, kind: Kind, name: str, path: Path) -> Candidate:
    data = read_file(path)
    entry = describe_content(data)
    state = Consents(owner, kind, []).judge(name, entry)
    return Candidate(kind, name, str(path), state, entry, owner, data.decode("utf-8", "replace"))


def judge_extension(paths: Paths, path: str, data: bytes) -> str:
    """Return why an extension file, named by its path, is not loaded as it is; empty if it is."""
    place = Path(os.path.realpath(path))
    # Agents cannot write the agent directory, except our own folder in it.
    if _is_inside(place, paths.agent_dir) and not _is_inside(place, paths.own_dir):
        return ""
    state: State = Consents(find_owner(paths, place), "extensions", []).judge(str(place), describe_content(data))
    if state == "ready":
        return ""
    problem = "has changed since you approved it" if state == "changed" else "is not approved"
    return f"{problem}; read it, then: retinue trust --extension {quote(str(place), 400)} --yes"


def find_owner(paths: Paths, path: Path) -> Paths:
    """Return where an approval of a file is stored: with its project, or for a file elsewhere with its own folder."""
    return paths if _is_inside(path, paths.project) else replace(paths, project=path.parent)


def is_agent_file(paths: Paths, path: str | Path) -> bool:
    """Return whether a file is in one of the project's agent folders."""
    return os.path.relpath(os.path.dirname(path), paths.project) in AGENT_FOLDERS


def accept_file(paths: Paths, path: Path) -> None:
    """Accept the current content of an agent file. Raises UsageError or ConfigError."""
    save_consent(paths, "files", os.path.relpath(path, paths.project), describe_content(read_file(path)))


def read_file(path: Path) -> bytes:
    """Read a regular file, without following a link. Raises UsageError."""
    shown = quote(str(path), 200)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        with open(handle, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} has more than {MAX_BYTES} bytes")
    return data


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
