"""Loads MCP server entries: the user's and, in a trusted folder, the project's, each of which needs approval.

Starts and contacts nothing; `mcp_entry` parses an entry.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.core.errors import quote
from retinue.features.approved import digest_file, digest_files
from retinue.features.mcp.server import Level, McpServer, fold_name
from retinue.settings.consent import Consents, State, find_ground, tell_waiting
from retinue.settings.files import BrokenFile, FileBound, bind_project, load_entries, load_json
from retinue.settings.mcp_entry import OVERRIDES, SELF_APPROVAL, McpEntry, read_server
from retinue.settings.paths import Paths, list_files

MAX_SERVERS = 200
_TOP = ("mcpServers", "autoEnableCodemode", "$schema")


class ConfiguredServer(Struct, frozen=True):
    server: McpServer
    state: State
    entry: Any
    """What an approval is bound to: the entry, and the project's files that it names."""

    @property
    def is_bound(self) -> bool:
        """Whether the server needs the user's approval: a project's server, or one that runs files of the project."""
        return self.server.level == "project" or bool(self.server.files)

    @property
    def notice(self) -> str:
        """A line about a server that waits for approval; else empty."""
        if not (what := tell_waiting(self.state)):
            return ""
        name = self.server.name
        whose = "of this project" if self.server.level == "project" else "of yours runs a file of this project and"
        return f"MCP server {name!r} {whose} {what}: skipped (to see and approve it: retinue trust --mcp {name})"


class Servers(Struct, frozen=True):
    found: tuple[ConfiguredServer, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ready(self) -> tuple[McpServer, ...]:
        """The servers that may be started."""
        return tuple(item.server for item in self.found if item.state == "ready")

    def find(self, name: str) -> ConfiguredServer | None:
        return next((item for item in self.found if item.server.name == name), None)


def load_servers(
    paths: Paths, environment: Mapping[str, str], *, trusted: bool, given: Mapping[str, Any] | None = None
) -> Servers:
    """Load all servers from files, and those that the caller has given, which win over files.

    A broken file or entry is reported and left out, without affecting others.
    """
    problems: list[Diagnostic] = []
    chosen = {fold_name(name): [McpEntry(name, entry, "the caller", "user")] for name, entry in (given or {}).items()}
    changes: list[McpEntry] = []
    for path, level in list_files(paths, trusted=trusted):
        bound = bind_project(paths) if level == "project" else None
        for written in _load_file(path, level, problems, bound):
            same = chosen.setdefault(fold_name(written.name), [])
            if level == "project" and written.is_override:
                changes.append(written)
            elif any(each.level == level for each in same):
                problems.append(
                    _tell(written, f"is overridden by {quote(same[-1].name)} in {same[-1].path}", "warning")
                )
            else:
                same.append(written)
    found: list[ConfiguredServer] = []
    consents = Consents(paths, "mcp", problems, trusted=trusted)
    for same in list(chosen.values())[:MAX_SERVERS]:
        found += _judge(same, environment, consents, problems, paths)
    return Servers(tuple(_narrow(found, changes, problems)), tuple(problems))


def _judge(
    entries: Iterable[McpEntry],
    environment: Mapping[str, str],
    consents: Consents,
    problems: list[Diagnostic],
    paths: Paths,
) -> Iterator[ConfiguredServer]:
    """Yield the entries of one name up to the first that needs no approval, so that the user's own stays usable."""
    for written in entries:
        server, more = read_server(written, environment)
        problems += more
        if server is None:
            continue
        server, entry = _bind(server, written, paths)
        state: State = "ready" if server.enabled else "disabled"
        if server.enabled and (server.level == "project" or server.files):
            state = consents.judge(server.name, entry)
        yield ConfiguredServer(server, state, entry)
        if state not in ("unapproved", "changed"):
            return


def _bind(server: McpServer, written: McpEntry, paths: Paths) -> tuple[McpServer, Any]:
    """Add the hashes of the project's files that a server names to the server and its entry."""
    ground = find_ground(paths, server.cwd)
    files = ground.find_files(server.command, server.args, paths.cwd) if server.command else {}
    if not files:
        return server, written.entry
    held = {str(path): digest_file(path) for path in files.values()}
    return replace(server, files=held), {**written.entry, "files": digest_files(files)}


def _narrow(
    found: list[ConfiguredServer], changes: Iterable[McpEntry], problems: list[Diagnostic]
) -> list[ConfiguredServer]:
    """Apply the project's changes to the user's servers; they can only take away."""
    for written in changes:
        key = fold_name(written.name)
        places = [
            n for n, each in enumerate(found) if each.server.level == "user" and fold_name(each.server.name) == key
        ]
        if not places:
            problems.append(_tell(written, "has neither command nor url, and no server of the user has its name"))
            continue
        entry, item = written.entry, found[places[0]]
        for name, value in entry.items():
            if value is not None and name not in OVERRIDES:
                problems.append(_tell(written, f"{quote(name)} has no effect on a server of the user", "warning"))
        is_off = entry.get("enabled") is False or entry.get("exposure") == "hidden"
        if entry.get("enabled") is True and item.state == "disabled":
            problems.append(_tell(written, "is disabled by the user; a project cannot enable it", "warning"))
        tools = entry.get("toolExposure")
        hidden = {name for name, how in (tools.items() if isinstance(tools, dict) else ()) if how == "hidden"}
        server = replace(
            item.server,
            enabled=item.server.enabled and not is_off,
            hidden_tools=(*item.server.hidden_tools, *sorted(hidden)),
            shown_tools=tuple(name for name in item.server.shown_tools if name not in hidden),
        )
        found[places[0]] = ConfiguredServer(server, "disabled" if is_off else item.state, item.entry)
    return found


def _load_file(path: Path, level: Level, problems: list[Diagnostic], bound: FileBound | None) -> Iterator[McpEntry]:
    if path.suffix == ".json":
        raw, more = load_json(path, bound=bound)
        problems += more
        yield from () if raw is None else _read_json(raw, path, level, problems)
        return
    yield from _load_yaml(path, level, problems, bound)


def _read_json(raw: Mapping[str, Any], path: Path, level: Level, problems: list[Diagnostic]) -> Iterator[McpEntry]:
    for key in raw:
        if key in SELF_APPROVAL:
            text = f"{path}: {key}: has no effect: the user decides what is started"
            problems.append(Diagnostic(text, str(path), None, "warning", "mcp", key))
        elif key not in _TOP:
            text = f"{path}: {quote(key)}: unknown{suggest(key, _TOP)}; servers go under mcpServers"
            problems.append(Diagnostic(text, str(path), None, "warning", "mcp", key))
    servers = {} if raw.get("mcpServers") is None else raw["mcpServers"]
    if not isinstance(servers, dict):
        text = f"{path}: mcpServers: found {show_value(servers)}; expected an object of servers"
        problems.append(Diagnostic(text, str(path), None, "error", "mcp", "mcpServers"))
        return
    for name, entry in servers.items():
        if entry is not None:
            yield McpEntry(name, entry, str(path), level)


def _load_yaml(path: Path, level: Level, problems: list[Diagnostic], bound: FileBound | None) -> Iterator[McpEntry]:
    try:
        entries = {entry.key: entry for entry in load_entries(path, "mcp", bound)}
    except BrokenFile as error:
        problems.append(error.problem)
        return
    if not entries:
        return
    from retinue.definitions.fields import to_plain
    from retinue.definitions.frontmatter import Items, Scalar, YamlTable

    def fail(text: str, line: int | None = None) -> None:
        place = path if line is None else f"{path}:{line}"
        problems.append(Diagnostic(f"{place}: {text}", str(path), line, "error", "mcp"))

    for key, entry in entries.items():
        if key != "servers":
            fail(f"{quote(key)}: unknown; servers go under servers", entry.line)
    match entries["servers"].value if "servers" in entries else None:
        case Items(values=values):
            for value in values:
                plain = to_plain(value)
                name = plain.get("name") if isinstance(plain, dict) else None
                if isinstance(name, str):
                    yield McpEntry(name, plain, str(path), level, value.line)
                else:
                    fail("a server without a name; expected a list of servers, each with a name", value.line)
        case YamlTable(values=table):
            for name, value in table.items():
                yield McpEntry(name, to_plain(value), str(path), level, value.line)
        case Scalar() as value if not value.is_null:
            fail(f"servers: found {quote(value.text)}; expected a list of servers", value.line)


def _tell(written: McpEntry, text: str, severity: Literal["error", "warning"] = "error") -> Diagnostic:
    place = written.path if written.line is None else f"{written.path}:{written.line}"
    message = f"{place}: server {quote(written.name)}: {text}"
    return Diagnostic(message, written.path, written.line, severity, "mcp", written.name[:80])
