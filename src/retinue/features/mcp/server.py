"""One configured MCP server, as the files say it; nothing here starts or reaches anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from retinue.core.redaction import collect_secrets
from retinue.core.tool import Effect
from retinue.models.values import is_command

Level: TypeAlias = Literal["user", "project"]
CALL_S = 60.0
CONCURRENCY = 3


@dataclass(frozen=True, slots=True)
class McpServer:
    """How one server is reached, and what the user says about it."""

    name: str
    command: str = ""
    """A program, for a server on standard input and output; else `url` is where it listens."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What it gets beside a few harmless variables; a value may be `!command`, whose output it then is."""
    cwd: str = ""
    """Where it runs; relative to the session's folder, which it is when empty."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    concurrency: int = CONCURRENCY
    """Calls at once."""
    auto_reconnect: bool = True
    timeout_s: float = CALL_S
    """For one call; news of its progress starts it again."""
    enabled: bool = True
    read_only_tools: tuple[str, ...] = ()
    """Tools that read-only agents may use; the user's word, which no server can give. `*` stands for any characters."""
    hidden_tools: tuple[str, ...] = ()
    shown_tools: tuple[str, ...] = ()
    """Exceptions from the hidden ones."""
    deferred_tools: tuple[str, ...] = ()
    """Tools that a model is shown only after it has looked for them."""
    direct_tools: tuple[str, ...] = ()
    """Exceptions from the deferred ones."""
    level: Level = "user"
    path: str = ""
    """The file that says all this."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the project that it runs, with what they held when the user agreed to it."""

    @property
    def secrets(self) -> list[str]:
        """What of its entry nobody should read again: variables and headers that hold keys."""
        # A header is a scheme and a key, or a key alone.
        words = [word for value in self.headers.values() for word in value.split()[-1:] if not is_command(value)]
        return [*collect_secrets({name: value for name, value in self.env.items() if not is_command(value)}), *words]

    @property
    def place(self) -> str:
        """What is started or reached, for people; without arguments and queries, which may hold secrets."""
        return self.command or self.url.partition("?")[0]

    def find_effect(self, tool: str) -> Effect:
        """The most that one of its tools can do, as far as the user vouches for it."""
        if _matches(tool, self.read_only_tools):
            return Effect.READ
        return Effect.EXECUTE if self.command else Effect.NETWORK

    def is_hidden(self, tool: str) -> bool:
        """Whether the user keeps one of its tools from everybody."""
        if tool in self.shown_tools or tool in self.hidden_tools:
            return tool in self.hidden_tools
        return _matches(tool, self.hidden_tools) and not _matches(tool, self.shown_tools)

    def is_deferred(self, tool: str) -> bool:
        """Whether one of its tools waits until it is looked for."""
        if tool in self.deferred_tools or tool in self.direct_tools:
            return tool in self.deferred_tools
        return _matches(tool, self.deferred_tools) and not _matches(tool, self.direct_tools)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    # Only the star is special here, so brackets and question marks of a name mean themselves.
    return any(fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)
