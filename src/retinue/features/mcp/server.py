"""Configuration of one MCP server, the names of its tools, and the selection of servers for a run."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.core.pattern import late_pattern
from retinue.core.redaction import collect_secrets
from retinue.core.tool import Effect
from retinue.core.tool_table import SEARCH
from retinue.models.auth import is_command
from retinue.tools.selectors import MCP, SELECTOR, choose_selectors, list_extensions, to_extension_name

Level: TypeAlias = Literal["user", "project"]
CALL_S = 60.0
CONCURRENCY = 3


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """How retinue shows itself to the authorization server of a server."""

    client_id: str = ""
    """Empty: it registers itself."""
    client_secret: str = field(default="", repr=False)
    client_name: str = "retinue"
    callback_port: int = 0
    """Port to which the browser returns; 0 for any."""
    scope: str = ""
    """Wanted in addition to what the server asks for."""


class LoginStore(Protocol):
    """Where the tokens of sign-ins are kept. All methods block, and raise RetinueError."""

    def load_login(self, name: str, url: str) -> dict[str, Any] | None:
        """Return the entry of a server, unless it is for another URL."""
        ...

    def store_login(self, name: str, entry: Mapping[str, Any]) -> None: ...

    def hold_login(self, name: str) -> AbstractContextManager[None]:
        """Hold a lock that other processes see while a token is renewed."""
        ...


@dataclass(frozen=True, slots=True)
class McpServer:
    """How to reach one server, and the user's settings for it."""

    name: str
    command: str = ""
    """A program, for a stdio server; otherwise `url` is set."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables besides a few harmless ones; the value `!command` is replaced by the command's output."""
    cwd: str = ""
    """Working directory, relative to the session's directory; empty means that directory."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient = OAuthClient()
    concurrency: int = CONCURRENCY
    auto_reconnect: bool = True
    timeout_s: float = CALL_S
    """For one call; progress notifications restart it."""
    enabled: bool = True
    read_only_tools: tuple[str, ...] = ()
    """Tools that read-only agents may use; only the user decides this. `*` matches any characters."""
    hidden_tools: tuple[str, ...] = ()
    shown_tools: tuple[str, ...] = ()
    """Exceptions from `hidden_tools`."""
    deferred_tools: tuple[str, ...] = ()
    """Tools that are hidden until the model finds them with `tool_search`."""
    direct_tools: tuple[str, ...] = ()
    """Exceptions from `deferred_tools`."""
    level: Level = "user"
    path: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Project files that it runs, with their digests when the user approved it."""

    @property
    def secrets(self) -> list[str]:
        """Values of variables and headers that contain keys."""
        # A header is a scheme and a key, or only a key.
        words = [word for value in self.headers.values() for word in value.split()[-1:] if not is_command(value)]
        words += [self.oauth.client_secret] if self.oauth.client_secret else []
        return [*collect_secrets({name: value for name, value in self.env.items() if not is_command(value)}), *words]

    @property
    def can_log_in(self) -> bool:
        """Whether the server may have a sign-in: a configured header comes first."""
        return bool(self.url) and "authorization" not in {name.lower() for name in self.headers}

    @property
    def place(self) -> str:
        """The command or URL for messages, without arguments and query, which may contain secrets."""
        return self.command or self.url.partition("?")[0]

    def find_effect(self, tool: str) -> Effect:
        """Return the effect of a tool; only the user's settings can declare it read-only."""
        if _matches(tool, self.read_only_tools):
            return Effect.READ
        return Effect.EXECUTE if self.command else Effect.NETWORK

    def is_hidden(self, tool: str) -> bool:
        return _is_listed(tool, self.hidden_tools, self.shown_tools)

    def is_deferred(self, tool: str) -> bool:
        return _is_listed(tool, self.deferred_tools, self.direct_tools)


def _is_listed(name: str, patterns: tuple[str, ...], exceptions: tuple[str, ...]) -> bool:
    if name in patterns or name in exceptions:
        return name in patterns
    return _matches(name, patterns) and not _matches(name, exceptions)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    # Only `*` is special, so escape brackets and question marks.
    return any(fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)


PREFIX = "mcp__"
MAX_CHARS = 64
_ODD = late_pattern(r"[^A-Za-z0-9_-]")
_HASH_CHARS = 8


def name_tools(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the name the model sees for each tool; names that would collide or are too long get a hash."""
    plain = {tool: f"{PREFIX}{_ODD.sub('_', server)}__{_ODD.sub('_', tool)}" for tool in tools}
    uses = Counter(plain.values())
    return {
        tool: name if uses[name] == 1 and len(name) <= MAX_CHARS else _add_hash(name, tool)
        for tool, name in plain.items()
    }


def fold_name(name: str) -> str:
    """Normalise a name for comparison: `-` and `_` are equal."""
    return _ODD.sub("_", name).replace("-", "_")


def find_server(name: str, servers: Iterable[str]) -> str | None:
    """Return the server that a tool name belongs to; the longest matching server name wins."""
    folded = fold_name(name)
    fitting = [server for server in servers if folded.startswith(f"{PREFIX}{fold_name(server)}__")]
    return max(fitting, key=len, default=None)


def _add_hash(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_CHARS - _HASH_CHARS - 1]}_{digest}"


def choose_servers(
    definition: Definition,
    servers: Mapping[str, McpServer],
    *,
    isolated: bool = False,
    exact: bool = False,
    always: Collection[str] = (),
) -> list[str]:
    """Return the servers that a run of a definition may need; with `exact` only those its file lists."""
    if isolated or definition.isolated or definition.extensions is False:
        return []
    if MCP in {to_extension_name(name) for name in definition.exclude_extensions}:
        return []
    listed = list_extensions(definition.extensions)
    is_listed = listed is None or MCP in listed or MCP in {name.lower() for name in always}
    if not is_listed:
        return []
    if definition.mcp_servers:
        chosen = [name for name in servers if name in definition.mcp_servers]
    else:
        searches = not exact and SEARCH in (definition.tools.names or ())
        chosen = _choose_named(definition, servers, exact=exact or definition.dialect != "pi", searches=searches)
    if definition.readonly:
        # Only the user's setting gives a tool to a read-only agent.
        return [name for name in chosen if servers[name].read_only_tools]
    return chosen


def _choose_named(
    definition: Definition, servers: Mapping[str, McpServer], *, exact: bool, searches: bool
) -> list[str]:
    words = choose_selectors(definition)
    if definition.tools.inherits or (not exact and not words):
        return list(servers)
    waiting = [name for name, server in servers.items() if server.deferred_tools] if searches else []
    return [name for name in servers if name in (*find_named(words, servers), *waiting)]


def find_named(words: Iterable[str], servers: Mapping[str, McpServer]) -> list[str]:
    """Return the servers whose tools the given selectors may mean."""
    found: set[str | None] = set()
    for word in words:
        named = word
        if word.startswith(SELECTOR):
            extension, _, named = word.removeprefix(SELECTOR).partition("/")
            if extension.strip().lower() != MCP:
                continue
            if ":" not in named and find_server(named, servers) is None:
                return list(servers)  # an unqualified tool name may belong to any server
        found.update(server for server in servers if named.startswith(f"{server}:"))
        found.add(find_server(named, servers))
    return [name for name in servers if name in found]


MAX_REASON_CHARS = 600


class McpFailed(RetinueError):
    """Raised when a server cannot do what it is asked; the message does not name the server."""


class ServerTrouble:
    """Why a connection ended; the first reason is kept."""

    def __init__(self) -> None:
        self.reason = ""
        self.ended = asyncio.Event()

    def note(self, reason: str) -> None:
        """Record that the connection ended or must end."""
        if not self.ended.is_set():
            self.reason = reason[:MAX_REASON_CHARS]
            self.ended.set()
