"""One entry of a project that is started only when the user agrees: shown whole, with what has changed, and decided on.

Must not know what the entries mean: a server and a hook say that themselves.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.consent import Kind, State, load_consents, save_consent
from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths

_WORDS = {
    "ready": "approved",
    "disabled": "disabled",
    "unapproved": "not approved",
    "changed": "changed since it was approved",
}


class Candidate(Struct, frozen=True):
    """What is decided about."""

    name: str
    path: str
    state: State
    entry: Any
    """All that an approval is bound to."""


class EntryApproval(ABC):
    """The user's decision about one entry."""

    kind: Kind

    def __init__(self, name: str, environment: Mapping[str, str], *, approve: bool | None = None) -> None:
        """Raises UsageError when this project has no such entry, or its files may not be read."""
        self._name = name
        self._environment = environment
        self._paths = find_paths(".", environment)
        self._trust = load_settings(self._paths, environment, approve=approve).trust
        self._found = self._find()

    @abstractmethod
    def look(self) -> Candidate:
        """The project's entry of that name, as it is now. Raises UsageError."""

    def decide(self, consent: bool) -> None:
        """Agree to the entry as it is now, or take that back. Raises ConfigError."""
        save_consent(self._paths, self.kind, self._found.name, self._found.entry if consent else None)
        self._found = self._find()

    def describe(self) -> tuple[str, list[str]]:
        """A line about it, and its entry, line by line, with what has changed since it was approved."""
        found = self._found
        line = f"{found.name} in {found.path}: {_WORDS[found.state]}"
        before = load_consents(self._paths, self.kind)[0].get(found.name)
        now = _render(found.entry)
        if found.state != "changed" or before is None:
            return line, now
        from difflib import unified_diff

        return line, [*unified_diff(_render(before.entry), now, "approved", "now", lineterm=""), "", *now]

    @property
    def needs_decision(self) -> bool:
        """Whether it is skipped until the user agrees."""
        return self._found.state in ("unapproved", "changed")

    def explain_missing(self, noun: str, names: list[str]) -> str:
        """What to say when the project has no such entry, but perhaps others."""
        listed = f"; it has {', '.join(names)}" if names else ", and no other one"
        return f"this project has no {noun} {quote(self._name)}{suggest(self._name, names)}{listed}"

    def _find(self) -> Candidate:
        if not self._trust.trusted:
            folder = quote(str(self._paths.project), 200)
            raise UsageError(f"{folder} is not trusted, so its files are not read: retinue trust {folder} --yes first")
        return self.look()


def _render(entry: Any) -> list[str]:
    return json.dumps(entry, indent=2, ensure_ascii=True).splitlines()
