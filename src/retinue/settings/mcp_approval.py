"""`retinue trust --mcp NAME`: one server of a project, shown whole, with what has changed, and the user's decision."""

import json
from collections.abc import Mapping
from typing import Any

from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.consents import load_consents, save_consent
from retinue.settings.layers import load_settings
from retinue.settings.mcp import Found, Servers, load_servers
from retinue.settings.paths import find_paths

_WORDS = {
    "ready": "approved",
    "disabled": "disabled",
    "unapproved": "not approved",
    "changed": "changed since it was approved",
}


class Approval:
    """One server about which is decided."""

    def __init__(self, name: str, environment: Mapping[str, str], *, approve: bool | None = None) -> None:
        """Raises UsageError when this project has no such server, or its files may not be read."""
        self._environment = environment
        self._paths = find_paths(".", environment)
        self._trust = load_settings(self._paths, environment, approve=approve).trust
        self._name = name
        self._found = self._find()

    def decide(self, consent: bool) -> None:
        """Agree to the server as it is now, or take that back. Raises ConfigError."""
        save_consent(self._paths, "mcp", self._found.server.name, self._found.written.entry if consent else None)
        self._found = self._find()

    def describe(self) -> tuple[str, list[str]]:
        """A line about it, and its entry, line by line, with what has changed since it was approved."""
        found = self._found
        line = f"{found.server.name} in {found.server.path}: {_WORDS[found.state]}"
        before = load_consents(self._paths, "mcp")[0].get(found.server.name)
        now = _render(found.written.entry)
        if found.state != "changed" or before is None:
            return line, now
        from difflib import unified_diff

        return line, [*list(unified_diff(_render(before.entry), now, "approved", "now", lineterm="")), "", *now]

    @property
    def needs_decision(self) -> bool:
        """Whether it is skipped until the user agrees."""
        return bool(self._found.notice)

    def _find(self) -> Found:
        if not self._trust.trusted:
            folder = quote(str(self._paths.project), 200)
            raise UsageError(f"{folder} is not trusted, so its files are not read: retinue trust {folder} --yes first")
        servers = load_servers(self._paths, self._environment, trusted=True)
        found = servers.find(self._name)
        if found is None:
            raise UsageError(self._explain(servers))
        if found.server.level == "user":
            raise UsageError(f"server {quote(self._name)} is your own ({found.server.path}): it needs no approval")
        return found

    def _explain(self, servers: Servers) -> str:
        names = [item.server.name for item in servers.found if item.server.level == "project"]
        broken = next((each.message for each in servers.diagnostics if each.field.split(".")[0] == self._name), "")
        if broken:
            return broken
        listed = f"; it has {', '.join(names)}" if names else ", and no other one"
        return f"this project has no MCP server {quote(self._name)}{suggest(self._name, names)}{listed}"


def _render(entry: Any) -> list[str]:
    return json.dumps(entry, indent=2, ensure_ascii=True).splitlines()
