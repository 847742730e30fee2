"""Checks, stores and removes the API keys in auth.json, pi's file. Every method blocks.

Must not show a key.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from retinue.core.diagnostics import suggest
from retinue.core.errors import ConfigError, ModelError, UsageError, quote
from retinue.models.auth import Credential, Keys, check_key, escape_secret, parse_auth
from retinue.models.catalog import APIS, Provider
from retinue.models.model_list import check_access
from retinue.models.registry import ModelRegistry
from retinue.settings.decisions import load_own, open_change, write_own
from retinue.settings.paths import Paths, find_paths
from retinue.settings.providers import is_offline, load_registry
from retinue.settings.trust import find_exposure


class KeyRow(NamedTuple):
    """A provider that needs a key."""

    id: str
    name: str
    source: str
    """Where its key comes from; empty if it has none."""


class StoredKeys:
    def __init__(self, paths: Paths | None = None, environment: Mapping[str, str] = os.environ) -> None:
        """Raises RetinueError without a home directory."""
        self._paths = paths or find_paths(".", environment)
        self._environment = environment

    @property
    def path(self) -> Path:
        return self._paths.auth_file

    @cached_property
    def _registry(self) -> ModelRegistry:
        return load_registry(self._paths, self._environment, offline=True)[0]

    def list_providers(self) -> list[KeyRow]:
        """The providers that need a key, built-in ones first."""
        keys, known = self._registry.keys, self._registry.providers.values()
        return [
            KeyRow(each.id, each.name, keys.find_source(each)) for each in known if each.needs_key and each.api in APIS
        ]

    def find(self, name: str) -> str:
        """The id of the provider that the user means. Raises UsageError."""
        ids = [row.id for row in self.list_providers()]
        found = next((id for id in ids if id.lower() == name.strip().lower()), None)
        if found is None:
            known = f"; known: {', '.join(ids)}"
            raise UsageError(f"unknown provider {quote(name)}{suggest(name, ids) or known}")
        if trouble := self._registry.providers[found].trouble:
            raise UsageError(trouble)
        return found

    def check(self, id: str, key: str, *, offline: bool = False) -> None:
        """Ask the provider whether it accepts a key.

        Raises KeyRefused if it does not, ModelError if that cannot be found out, ConfigError for what cannot be a key.
        """
        key = check_key(key, f"key for {id}")
        if is_offline(self._environment, offline=offline):
            raise ModelError(f"{id}: cannot be reached with --offline or PI_OFFLINE")
        provider = self._registry.providers[id]
        info = provider.default_model
        if info is None:
            raise ModelError(f"{id}: it has no models; add some to models.json")
        keys = Keys(self._environment, {id: Credential(escape_secret(key), self._find_variables(provider))})
        check_access(provider, lambda: keys.unlock(provider, info))

    def store(self, id: str, key: str) -> None:
        """Write a key; other entries stay as they are. Raises ConfigError."""
        key = check_key(key, f"key for {id}")
        with open_change(self.path):
            content = self._load()
            entry = content.get(id)
            if isinstance(entry, dict) and entry.get("type") == "oauth":
                text = f"{self.path} has a login of pi for {id}, which a key would replace"
                raise ConfigError(f"{text}; remove it first: retinue logout {id}")
            kept = entry if isinstance(entry, dict) else {}
            self._write({**content, id: {**kept, "type": "api_key", "key": escape_secret(key)}})

    def remove(self, name: str) -> str:
        """Remove an entry; returns its provider. Raises UsageError if there is none, or ConfigError."""
        stored = self.list_stored()
        found = next((id for id in stored if id.lower() == name.strip().lower()), None)
        if found is None:
            others = f"it has entries for: {', '.join(stored)}" if stored else "it has no entries"
            raise UsageError(f"{self.path} has no entry for {quote(name)}; {others}")
        with open_change(self.path):
            self._write({id: entry for id, entry in self._load().items() if id != found})
        self.__dict__.pop("_registry", None)
        return found

    def load_login(self, name: str, url: str) -> dict[str, Any] | None:
        """Return the sign-in to an MCP server; None without one to this URL. Raises ConfigError."""
        entry = load_own(self.path).get(f"mcp:{name}")
        is_usable = isinstance(entry, dict) and entry.get("server") == url and isinstance(entry.get("access"), str)
        return entry if is_usable else None

    def store_login(self, name: str, entry: Mapping[str, Any]) -> None:
        """Write the sign-in to an MCP server. Raises ConfigError."""
        with open_change(self.path):
            self._write({**self._load(), f"mcp:{name}": dict(entry)})

    def hold_login(self, name: str) -> AbstractContextManager[None]:
        return open_change(self.path, self.path.with_name(f"{self.path.name}.{name}"))

    def list_stored(self) -> list[str]:
        """The providers with an entry. Raises ConfigError if the file cannot be read."""
        return list(load_own(self.path))

    def find_source(self, id: str) -> str:
        """Where a provider's key comes from; empty if there is none."""
        provider = self._registry.providers.get(id)
        return "" if provider is None else self._registry.keys.find_source(provider)

    def _find_variables(self, provider: Provider) -> Mapping[str, str]:
        entry = load_own(self.path).get(provider.id)
        found, _ = parse_auth({provider.id: entry} if isinstance(entry, dict) else {}, str(self.path))
        return found.get(provider.id, Credential()).env

    def _load(self) -> dict[str, object]:
        if problem := find_exposure(self.path):
            raise ConfigError(f"{self.path}: {problem}; nothing is stored")
        return load_own(self.path)

    def _write(self, content: Mapping[str, object]) -> None:
        """Replace the file; it is private before it holds a key."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        with suppress(FileExistsError):
            handle = os.open(self.path, flags, 0o600)
            os.write(handle, b"{}\n")
            os.close(handle)
        if os.name == "posix":
            os.chmod(self.path, 0o600)
        write_own(self.path, content)
