"""Parses one entry of `mcp.json` or `mcp.yaml` into a McpServer.

An invalid field that decides what is started or contacted drops the entry; an invalid limit drops only itself. Must not
know which files exist and who may use an entry.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.features.mcp.server import CALL_S, CONCURRENCY, Level, McpServer, OAuthClient

MAX_CONCURRENCY = 64
MAX_TIMEOUT_S = 3_600
_NAME = late_pattern(r"[A-Za-z0-9_-]{1,40}\Z")
_VARIABLE = late_pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_TYPES = ("stdio", "http", "streamable-http")
_EXPOSURES = ("codemode", "codemode-deferred", "deferred", "direct", "hidden")
CONNECTING = ("command", "url", "type")
"""Without one of these, a project's entry only changes a server of the user."""
_DEFERRED = ("deferred", "codemode-deferred")
OVERRIDES = ("enabled", "exposure", "toolExposure")
_KNOWN = (
    *("command", "args", "env", "cwd", "url", "headers", "type", "timeout", "enabled", "exposure", "toolExposure"),
    *("description", "concurrency", "autoReconnect", "readOnlyTools", "oauth", "name"),
)
_OAUTH = ("clientId", "clientSecret", "clientName", "callbackPort", "scope")
# Names that various programs use for starting or obeying a server without asking.
SELF_APPROVAL = (
    *("alwaysAllow", "autoApprove", "autoEnable", "approved", "trust", "trusted", "enableAllProjectMcpServers"),
    *("enabledMcpjsonServers", "autoStart"),
)


class McpEntry(Struct, frozen=True):
    """An entry as read from a file."""

    name: str
    entry: Any
    path: str
    level: Level
    line: int | None = None

    @property
    def is_override(self) -> bool:
        """Whether the entry only changes a server that is defined elsewhere."""
        return isinstance(self.entry, Mapping) and all(self.entry.get(key) is None for key in CONNECTING)


class _Bad(Exception):
    """The entry is unusable; the problem has been reported."""


def read_server(written: McpEntry, environment: Mapping[str, str]) -> tuple[McpServer | None, list[Diagnostic]]:
    """Parse an entry; None if it is unusable."""
    reader = _Reader(written, environment)
    try:
        return reader.read(), reader.problems
    except _Bad:
        return None, reader.problems


def check_name(name: str) -> str:
    """Return what is wrong with a server name; empty if nothing is."""
    return "" if _NAME.match(name) else "1 to 40 letters, digits, _ and -"


class _Reader:
    def __init__(self, written: McpEntry, environment: Mapping[str, str]) -> None:
        self._written = written
        self._environment = environment
        self.problems: list[Diagnostic] = []

    def read(self) -> McpServer:
        written, entry = self._written, self._written.entry
        if accepted := check_name(written.name):
            self._refuse("", written.name, accepted)
        if not isinstance(entry, Mapping):
            self._refuse("", entry, "an object")
        self._check_keys(entry)
        command, url = self._take_target(entry)
        hidden, shown = self._take_exposure(entry)
        deferred, direct = _find_deferred(entry)
        return McpServer(
            name=written.name,
            command=command,
            args=tuple(self._fill("args", text) for text in self._take_texts(entry, "args")),
            env=self._take_table(entry, "env", _ENV_NAME, "the name of a variable"),
            cwd=self._fill("cwd", self._take_text(entry, "cwd")),
            url=url,
            headers=self._take_table(entry, "headers", _HEADER, "the name of a header"),
            oauth=self._take_oauth(entry),
            concurrency=int(self._take_number(entry, "concurrency", CONCURRENCY, 1, MAX_CONCURRENCY, whole=True)),
            auto_reconnect=self._take_flag(entry, "autoReconnect"),
            timeout_s=self._take_number(entry, "timeout", CALL_S, 0.1, MAX_TIMEOUT_S),
            enabled=self._take_flag(entry, "enabled"),
            read_only_tools=self._take_read_only(entry),
            hidden_tools=hidden,
            shown_tools=shown,
            deferred_tools=deferred,
            direct_tools=direct,
            level=written.level,
            path=written.path,
        )

    def _check_keys(self, entry: Mapping[str, Any]) -> None:
        for key in (key for key, value in entry.items() if value is not None):
            if key in SELF_APPROVAL:
                self._tell(f".{key}", "has no effect: the user decides what is started", "warning")
            elif key not in _KNOWN:
                self._tell(f".{quote(key)}", f"unknown field{suggest(str(key), _KNOWN)}", "warning")

    def _take_target(self, entry: Mapping[str, Any]) -> tuple[str, str]:
        if entry.get("type") is not None and entry["type"] not in _TYPES:
            self._refuse("type", entry["type"], f"one of {', '.join(_TYPES)}")
        command, url = self._take_text(entry, "command"), self._take_text(entry, "url")
        if command and url:
            self._fail("has both command and url; expected one of them")
        if not command and not url:
            self._fail("has neither command nor url; expected one of them")
        if entry.get("type") == "stdio" and url:
            self._refuse("type", "stdio", "http for a server with a url")
        if entry.get("type") in ("http", "streamable-http") and command:
            self._refuse("type", entry["type"], "stdio for a server with a command")
        if command and re.match(r"[^/\s]+\s", command):
            self._refuse("command", command, "one program; its arguments go into args")
        if url:
            self._check_url(url := self._fill("url", url))
        return self._fill("command", command), url

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port)
        except ValueError:
            is_fine = False
        if not is_fine or re.search(r"[\s\x00-\x1f\x7f]", url):
            self._refuse("url", url, "an address that begins with https:// or http://")
        if parts.username is not None or parts.password is not None:
            self._fail("has a name or password in its url; put it into headers")
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            self._tell(".url", f"{quote(url)} is not encrypted; expected https:// for another machine", "warning")

    def _take_oauth(self, entry: Mapping[str, Any]) -> OAuthClient:
        given = entry.get("oauth")
        if given is None:
            return OAuthClient()
        if not isinstance(given, Mapping):
            self._refuse("oauth", given, "an object")
        fields = {f"oauth.{name}": value for name, value in given.items()}
        for key in (key for key, value in given.items() if value is not None and key not in _OAUTH):
            self._tell(f".oauth.{quote(key)}", f"has no effect{suggest(str(key), _OAUTH)}", "warning")

        def take(name: str, default: str = "") -> str:
            return self._fill(f"oauth.{name}", self._take_text(fields, f"oauth.{name}")) or default

        return OAuthClient(
            client_id=take("clientId"),
            client_secret=take("clientSecret"),
            client_name=take("clientName", "retinue"),
            callback_port=int(self._take_number(fields, "oauth.callbackPort", 0, 0, 65_535, whole=True)),
            scope=take("scope"),
        )

    def _take_exposure(self, entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tools = entry.get("toolExposure")
        if tools is not None and not isinstance(tools, Mapping):
            self._refuse("toolExposure", tools, "an object of tool names")
        single = _drop_nulls(tools or {})
        every, fields = entry.get("exposure"), {f"toolExposure.{name}": how for name, how in single.items()}
        for field, value in _drop_nulls({"exposure": every, **fields}).items():
            if value not in _EXPOSURES:
                self._refuse(field, value, f"one of {', '.join(_EXPOSURES)}")
        hidden = [*(["*"] if every == "hidden" else ()), *(name for name, how in single.items() if how == "hidden")]
        return tuple(hidden), tuple(name for name, how in single.items() if how != "hidden")

    def _take_read_only(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        found = self._take_texts(entry, "readOnlyTools")
        if found and self._written.level == "project":
            self._tell(
                ".readOnlyTools", "has no effect in a project's file; only the user's file can declare it", "warning"
            )
            return ()
        return tuple(found)

    def _take_text(self, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            hint = "; its arguments go into args" if key == "command" and isinstance(value, list) else ""
            self._refuse(key, value, f"text that is not blank{hint}")
        return str(value)

    def _take_texts(self, entry: Mapping[str, Any], key: str) -> list[str]:
        value = entry.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self._refuse(key, value, "a list of strings")
        for index, item in enumerate(value):
            if not isinstance(item, str) or "\0" in item:
                self._refuse(f"{key}[{index}]", item, "a string; put numbers in quotes")
        return list(value)

    def _take_table(self, entry: Mapping[str, Any], key: str, name: re.Pattern[str], kind: str) -> dict[str, str]:
        value = entry.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._refuse(key, value, "an object of strings")
        for field, item in value.items():
            if not name.match(field):
                self._refuse(f"{key}.{quote(field)}", field, kind)
            if not isinstance(item, str) or re.search(r"[\x00\r\n]", item):
                # The value may be a secret, so it is not shown.
                self._fail(f"{key}.{field} is not a string of one line; put numbers in quotes")
        return {
            field: item if item.startswith("!") else self._fill(f"{key}.{field}", item) for field, item in value.items()
        }

    def _take_number(
        self, entry: Mapping[str, Any], key: str, default: float, lowest: float, highest: float, *, whole: bool = False
    ) -> float:
        value = default if entry.get(key) is None else entry[key]
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and lowest <= value <= highest
        if is_number and not (whole and value != int(value)):
            return float(value)
        kind = "a whole number" if whole else "a number"
        text = f"found {show_value(value)}; expected {kind} from {lowest:g} to {highest:g}; {default:g} is used"
        self._tell(f".{key}", text, "warning")
        return default

    def _take_flag(self, entry: Mapping[str, Any], key: str) -> bool:
        value = True if entry.get(key) is None else entry[key]
        if not isinstance(value, bool):
            self._refuse(key, value, "true or false")
        return bool(value)

    def _fill(self, field: str, text: str) -> str:
        """Substitute environment variables; an unset one is empty and reported."""

        def find(match: re.Match[str]) -> str:
            value = self._environment.get(match[1], match[2])
            if value is None:
                self._tell(
                    f".{field}", f"uses the variable {match[1]}, which is not set; an empty text is used", "warning"
                )
            return value or ""

        return _VARIABLE.sub(find, text)

    def _refuse(self, field: str, value: object, accepted: str) -> NoReturn:
        where = f".{field}" if field else ""
        self._tell(where, f"found {show_value(value)}; expected {accepted}; the server is skipped")
        raise _Bad

    def _fail(self, text: str) -> NoReturn:
        self._tell("", f"{text}; the server is skipped")
        raise _Bad

    def _tell(self, where: str, text: str, severity: Literal["error", "warning"] = "error") -> None:
        written = self._written
        place = written.path if written.line is None else f"{written.path}:{written.line}"
        name = written.name if written.name.isprintable() and written.name else quote(written.name)
        message = f"{place}: server {name[:80]}{where}: {text}"
        self.problems.append(
            Diagnostic(message, written.path, written.line, severity, "mcp", f"{written.name[:80]}{where}")
        )


def _drop_nulls(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if value is not None}


def _find_deferred(entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tools that are deferred until a search finds them, and those that are not."""
    tools = entry.get("toolExposure")
    single = _drop_nulls(tools) if isinstance(tools, Mapping) else {}
    every = ["*"] if entry.get("exposure") in _DEFERRED else []
    waiting = [name for name, how in single.items() if how in _DEFERRED]
    return (*waiting, *every), tuple(name for name in single if name not in waiting)
