"""`retinue trust --hook NAME`: one hook of a project, shown whole, with what has changed, and the user's decision."""

import json
from collections.abc import Mapping
from typing import Any

from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.consents import load_consents, save_consent
from retinue.settings.hooks import FoundHook, load_hooks, load_profile
from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths
from retinue.settings.roster import open_registry
from retinue.settings.subagents import load_crew

_WORDS = {
    "ready": "approved",
    "disabled": "disabled",
    "unapproved": "not approved",
    "changed": "changed since it was approved",
}


class HookApproval:
    """One hook about which is decided."""

    def __init__(self, name: str, environment: Mapping[str, str], *, approve: bool | None = None) -> None:
        """Raises UsageError when this project has no such hook, or its files may not be read."""
        self._environment = environment
        self._paths = find_paths(".", environment)
        self._trust = load_settings(self._paths, environment, approve=approve).trust
        self._name = name
        self._found = self._find()

    def decide(self, consent: bool) -> None:
        """Agree to the hook as it is now, or take that back. Raises ConfigError."""
        save_consent(self._paths, "hooks", self._found.spec.name, self._found.entry if consent else None)
        self._found = self._find()

    def describe(self) -> tuple[str, list[str]]:
        """A line about it, and its entry, line by line, with what has changed since it was approved."""
        found = self._found
        line = f"{found.spec.name} in {found.spec.path}: {_WORDS[found.state]}"
        before = load_consents(self._paths, "hooks")[0].get(found.spec.name)
        now = _render(found.entry)
        if found.state != "changed" or before is None:
            return line, now
        from difflib import unified_diff

        return line, [*unified_diff(_render(before.entry), now, "approved", "now", lineterm=""), "", *now]

    @property
    def needs_decision(self) -> bool:
        """Whether it is skipped until the user agrees."""
        return bool(self._found.notice)

    def _find(self) -> FoundHook:
        if not self._trust.trusted:
            folder = quote(str(self._paths.project), 200)
            raise UsageError(f"{folder} is not trusted, so its files are not read: retinue trust {folder} --yes first")
        known = self._list()
        found = next((item for item in known if item.spec.name == self._name and not item.spec.is_own), None)
        if found is not None:
            return found
        if any(item.spec.name == self._name for item in known):
            raise UsageError(f"hook {quote(self._name)} is your own: it needs no approval")
        names = [item.spec.name for item in known if not item.spec.is_own]
        listed = f"; it has {', '.join(names)}" if names else ", and no other one"
        raise UsageError(f"this project has no hook {quote(self._name)}{suggest(self._name, names)}{listed}")

    def _list(self) -> list[FoundHook]:
        """The hooks of the files, and those of the project's agents, as `agent/hook`."""
        crew = load_crew(self._paths, self._environment, trusted=True).settings
        agents = open_registry(self._paths, crew, trusted=True).read().definitions
        profiles = [each for each in agents if each.hooks and each.source == "project"]
        return [
            *load_hooks(self._paths, trusted=True).found,
            *(item for each in profiles for item in load_profile(self._paths, each).found),
        ]


def _render(entry: Any) -> list[str]:
    return json.dumps(entry, indent=2, ensure_ascii=True).splitlines()
