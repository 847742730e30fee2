"""API keys: from auth.json, the environment and models.json, including values that refer to a secret.

Whether a key exists is known without running a command; the key itself is resolved when needed. This file must not show
a key or read files.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError, ModelError
from retinue.core.model import ModelInfo
from retinue.core.pattern import late_pattern
from retinue.core.redaction import is_secret_name
from retinue.models.catalog import Provider
from retinue.models.fields import ConfigObject

if TYPE_CHECKING:
    import subprocess

COMMAND_TIMEOUT_S = 10.0
_LARGEST_OUTPUT = 65_536
# `$$` and `$!` are escapes; a `$` before anything else is literal.
_REFERENCE = late_pattern(r"\$(?:([$!])|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def is_command(value: str) -> bool:
    """Whether the value is a command (`!command`) whose output is the secret."""
    return value.startswith("!")


def escape_secret(text: str) -> str:
    """The value that stands for exactly this text."""
    text = text.replace("$", "$$")
    return f"${text}" if is_command(text) else text


def find_missing(value: str, environment: Mapping[str, str]) -> list[str]:
    """The referenced variables that are not set."""
    return [name for name in list_names(value) if not environment.get(name)]


def list_names(value: str) -> list[str]:
    if is_command(value):
        return []
    return list(dict.fromkeys(match[2] or match[3] for match in _REFERENCE.finditer(value) if not match[1]))


class SecretResolver:
    """Resolves values; runs each command once."""

    def __init__(self, environment: Mapping[str, str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._outputs: dict[str, str | ConfigError] = {}

    def resolve(self, value: str, what: str, extra: Mapping[str, str] | None = None) -> str:
        """The text a value stands for; `extra` variables override the environment. Raises ConfigError naming `what`."""
        if is_command(value):
            return self._run(value[1:], what)
        environment = {**self._environment, **extra} if extra else self._environment
        if missing := find_missing(value, environment):
            raise ConfigError(f"{what}: the environment variable {' and '.join(missing)} is not set")
        return _REFERENCE.sub(lambda match: match[1] or environment[match[2] or match[3]], value)

    def _run(self, command: str, what: str) -> str:
        if command not in self._outputs:
            try:
                self._outputs[command] = _run_command(command, self._environment, self._timeout_s)
            except ConfigError as error:
                self._outputs[command] = error
        output = self._outputs[command]
        if isinstance(output, ConfigError):
            raise ConfigError(f"{what}: {output}")
        return output


def _run_command(command: str, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a shell command; returns its output. Blocks for at most `timeout_s`. Drops stderr: it may hold a secret."""
    import subprocess  # slow import; most runs have no command to run

    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"its command cannot be started: {error.__class__.__name__}") from None
    with process:
        try:
            output = _read_output(process, timeout_s)
        finally:
            _end_group(process)
    if output is None:
        raise ConfigError(f"its command gave no result within {timeout_s:g} s")
    if process.returncode:
        raise ConfigError(f"its command failed with status {process.returncode}")
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        raise ConfigError("its command printed something that is not text") from None
    if not text:
        raise ConfigError("its command printed nothing")
    return text


def _read_output(process: "subprocess.Popen[bytes]", timeout_s: float) -> bytes | None:
    """The complete output; None if it takes too long or is too large."""
    import selectors
    import subprocess

    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _LARGEST_OUTPUT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(process.stdout.fileno(), _LARGEST_OUTPUT)
            if not piece:
                try:
                    process.wait(max(0.05, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return None
                return output
            output += piece
    return None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill what the command left behind, so that nothing holds the pipe open."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


# Anthropic expects this one as a bearer token, not as an API key.
_BEARER = "ANTHROPIC_AUTH_TOKEN"
_AUTH = "Authorization"


class Credential(Struct, frozen=True):
    """An unresolved provider entry of auth.json."""

    key: str | None = None
    env: Mapping[str, str] = {}
    is_login: bool = False
    """An OAuth login, which only pi can use."""

    def __repr__(self) -> str:
        return f"Credential({'login' if self.is_login else 'key'})"


def parse_auth(raw: Mapping[str, Any], path: str) -> tuple[dict[str, Credential], list[Diagnostic]]:
    """The credentials in a parsed auth.json; an invalid entry is left out and reported without its values."""
    top = ConfigObject(raw, path, "", [])
    found: dict[str, Credential] = {}
    for id in raw:
        entry = top.take_object(id)
        if entry is None:
            continue
        kind = entry.values.get("type")
        if kind == "oauth":
            found[id] = Credential(is_login=True)
        elif kind != "api_key":
            entry.refuse("type", '"api_key" (or "oauth", which only pi can use)')
        else:
            before = len(entry.diagnostics)
            key = entry.take_text("key")
            env = entry.take_object("env")
            values = {name: env.take_text(name) or "" for name in env.values} if env else {}
            if len(entry.diagnostics) == before:
                found[id] = Credential(key, values)
    return found, top.diagnostics


class Keys:
    """Finds and resolves the keys of providers."""

    def __init__(
        self,
        environment: Mapping[str, str],
        credentials: Mapping[str, Credential] | None = None,
        *,
        flag: str | None = None,
        auth_file: str = "auth.json",
        timeout_s: float = 10.0,
    ) -> None:
        self._environment = environment
        self._credentials = credentials or {}
        self._flag = flag
        self._flag_provider: str | None = None
        self._auth_file = auth_file
        self._resolver = SecretResolver(environment, timeout_s=timeout_s)

    def find_source(self, provider: Provider) -> str:
        """Where a provider's key comes from: `--api-key`, a file or a variable; empty if there is no key."""
        stored = self._credentials.get(provider.id, Credential())
        environment = self._merge_environment(provider)
        if provider.trouble:
            return ""
        if not provider.needs_key:
            return "no key needed"
        if self._flag and self._flag_provider in (None, provider.id):
            return "--api-key"
        if stored.key and not find_missing(stored.key, environment):
            return self._auth_file
        if provider.api_key and not find_missing(provider.api_key, environment):
            return "models.json"
        return next((name for name in provider.env if environment.get(name)), "")

    def has_key(self, provider: Provider) -> bool:
        """Whether a provider has a key; the key is not checked."""
        return bool(self.find_source(provider))

    def renew(self, credentials: Mapping[str, Credential]) -> None:
        """Use other entries of auth.json from now on."""
        self._credentials = credentials

    @property
    def has_flag(self) -> bool:
        return bool(self._flag)

    def bind_flag(self, provider_id: str) -> None:
        """Restrict the key of `--api-key` to one provider: no other provider may ever receive it."""
        self._flag_provider = provider_id

    def is_in_environment(self, provider: Provider) -> bool:
        return any(self._environment.get(name) for name in provider.env)

    def explain_missing(self, provider: Provider) -> str:
        if provider.trouble:
            return provider.trouble
        ways = [f"run retinue login {provider.id}"]
        if provider.api_key:
            missing = " and ".join(find_missing(provider.api_key, self._environment))
            ways.insert(0, f"set {missing}, which its apiKey in models.json names")
        elif provider.env:
            ways.append(f"set {provider.env[-1]}")
        else:
            ways.append("give it an apiKey in models.json (any text if the server needs none)")
        text = f"no key for provider {provider.id}: " + ", or ".join(ways)
        if self._credentials.get(provider.id, Credential()).is_login:
            text += f" ({self._auth_file} has a login for it, which only pi can use)"
        return text

    def unlock(self, provider: Provider, info: ModelInfo) -> tuple[ModelInfo, str]:
        """The model with its request headers, and the key (empty if the headers carry it).

        May run a command and block up to its time limit. Raises ConfigError or ModelError, never with a secret in the
        message.
        """
        environment = self._merge_environment(provider)
        source = self.find_source(provider)
        if not source:
            raise ModelError(self.explain_missing(provider))
        stored = self._credentials.get(provider.id, Credential())
        what = f"key of provider {provider.id} from {source}"
        key, headers = "", dict(info.headers)
        if source == "--api-key":
            key = check_key(self._flag or "", what)
        elif source in (self._auth_file, "models.json"):
            value = stored.key if source == self._auth_file else provider.api_key
            key = check_key(self._resolver.resolve(value or "", what, environment), what)
        elif source == _BEARER:
            headers["Authorization"] = f"Bearer {check_key(environment[source], what)}"
        elif provider.needs_key:
            key = check_key(environment[source], what)
        for name, value in {**provider.headers, **provider.model_headers.get(info.id, {})}.items():
            header = f"header {name} of provider {provider.id} in models.json"
            headers[name] = _check_line(self._resolver.resolve(value, header, environment), header)
        if provider.auth_header and key:
            headers["Authorization"] = f"Bearer {key}"
        return structs.replace(info, headers=headers), key

    def list_secrets(self, providers: Iterable[Provider]) -> Iterator[str]:
        """Every secret that is known without running a command."""
        stored = self._credentials.values()
        written = [
            self._flag,
            *(item.key for item in stored),
            *(value for item in stored for value in item.env.values()),
        ]
        for provider in providers:
            written.append(provider.api_key)
            headers = [provider.headers, *provider.model_headers.values()]
            written += [
                value for each in headers for name, value in each.items() if is_secret_name(name) or name == _AUTH
            ]
            yield from (self._environment[name] for name in provider.env if self._environment.get(name))
        for value in filter(None, written):
            names = list_names(value)
            yield from (self._environment[name] for name in names if self._environment.get(name))
            if not names and not is_command(value):
                yield value.removeprefix("Bearer ")

    def export(self, provider: Provider, info: ModelInfo) -> dict[str, str]:
        """The variables with which another process of this user finds the same key, and no other secret."""
        source, moved = self.find_source(provider), provider.base_url_from
        stored = self._credentials.get(provider.id, Credential())
        if source == "--api-key":
            where = {moved: self._environment[moved]} if self._environment.get(moved) else {}
            return {provider.env[-1]: self._flag or "", **where} if provider.env else {}
        values = [*provider.headers.values(), *provider.model_headers.get(info.id, {}).values()]
        values += [value for value in (stored.key, provider.api_key) if value]
        names = [*(name for value in values for name in list_names(value)), source, moved]
        return {name: self._environment[name] for name in names if self._environment.get(name)}

    def export_named(self, provider_id: str) -> dict[str, str]:
        """Like `export`, for a provider of which only the name is known."""
        start = f"{provider_id.upper().replace('-', '_')}_"
        return {name: value for name, value in self._environment.items() if name.startswith(start) and value}

    def _merge_environment(self, provider: Provider) -> Mapping[str, str]:
        stored = self._credentials.get(provider.id)
        return {**self._environment, **stored.env} if stored and stored.env else self._environment


def check_key(key: str, what: str) -> str:
    """The key without blanks around it. Raises ConfigError naming `what` if it cannot be a key."""
    key = key.strip()
    if not key:
        raise ConfigError(f"{what}: is empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{what}: has blanks, line breaks or characters outside ASCII; expected the bare key")
    return key


def _check_line(value: str, what: str) -> str:
    if not value.isprintable():
        raise ConfigError(f"{what}: has line breaks or control characters; expected one line")
    return value
