"""Stores which entries of a project's configuration the user has approved, each bound to its exact content.

Kept in `<agent-dir>/retinue/trust.json`, beside the bindings of trust decisions. A changed entry needs a new approval.
Must not know what the entries mean.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.features.approved import ProjectPlace
from retinue.settings.decisions import load_own, open_change, write_own
from retinue.settings.files import load_json
from retinue.settings.paths import Paths
from retinue.settings.trust import find_bindings_file, find_exposure

Kind: TypeAlias = Literal["mcp", "hooks", "extensions", "files", "commands"]
State: TypeAlias = Literal["ready", "disabled", "unapproved", "changed"]
"""State of an entry; anything but ready and disabled waits for the user."""


class Consent(Struct, frozen=True):
    digest: str
    entry: Any = None
    """The entry at the time of approval, to show what has changed."""


class Consents:
    """The approvals of one project, read on first use."""

    def __init__(self, paths: Paths, kind: Kind, problems: list[Diagnostic], *, trusted: bool = True) -> None:
        """In an untrusted folder nothing is approved."""
        self._paths = paths
        self._kind = kind
        self._problems = problems
        self._given: dict[str, Consent] | None = None if trusted else {}

    @property
    def given(self) -> Mapping[str, Consent]:
        if self._given is None:
            self._given, problems = load_consents(self._paths, self._kind)
            self._problems += problems
        return self._given

    def judge(self, name: str, entry: Any) -> State:
        """Return whether an entry may be started as it is now."""
        consent = self.given.get(name)
        if consent is None:
            return "unapproved"
        return "ready" if consent.digest == digest_entry(name, entry) else "changed"


def find_ground(paths: Paths, folder: str = "") -> ProjectPlace:
    """Return which files belong to the project; `folder` is the working directory that an entry wants."""
    home = paths.home
    place = home / folder[2:] if home is not None and folder.startswith("~/") else paths.cwd / folder
    own = (paths.agent_dir,) if home is None else (paths.agent_dir, home / ".codingcode")
    return ProjectPlace(paths.project, place, home, own)


def tell_waiting(state: State) -> str:
    """Describe why an entry waits for the user; empty if it does not."""
    return {"unapproved": "is not approved", "changed": "has changed since it was approved"}.get(state, "")


def digest_entry(name: str, entry: Any) -> str:
    """Return the hash that an approval is bound to: of the name and the whole entry."""
    text = json.dumps([name, entry], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_consents(paths: Paths, kind: Kind) -> tuple[dict[str, Consent], list[Diagnostic]]:
    """Read the approvals of this project by name. A file that other users could have written approves nothing."""
    path = find_bindings_file(paths)
    if problem := find_exposure(path):
        return {}, [Diagnostic(f"{path}: {problem}; nothing in it counts as approved", str(path), code="trust")]
    raw, problems = load_json(path)
    found: dict[str, Consent] = {}
    for name, item in _select(raw or {}, kind, paths.project).items():
        if isinstance(item, dict) and isinstance(item.get("hash"), str):
            found[name] = Consent(item["hash"], item.get("entry"))
    return found, problems


def load_accepted(paths: Paths) -> dict[str, str]:
    """Return the agent files of this project that were accepted one by one: path → SHA-256."""
    given = load_consents(paths, "files")[0]
    return {
        str(paths.project / name): str(consent.entry.get("sha256"))
        for name, consent in given.items()
        if isinstance(consent.entry, dict) and consent.digest == digest_entry(name, consent.entry)
    }


def describe_content(data: bytes) -> dict[str, str]:
    """Return what an approval of a file is bound to."""
    return {"sha256": hashlib.sha256(data).hexdigest()}


def save_consent(paths: Paths, kind: Kind, name: str, entry: Any) -> None:
    """Approve an entry as it is now; None withdraws the approval. Raises ConfigError."""
    path = find_bindings_file(paths)
    if problem := find_exposure(path):
        raise ConfigError(f"{path}: {problem}; nothing is saved")
    # Our file is always written under the lock of pi's file.
    with open_change(path, paths.trust_file):
        content = load_own(path) or {"version": 1}
        given = dict(_select(content, kind, paths.project))
        given.pop(name, None)
        if entry is not None:
            given[name] = {"hash": digest_entry(name, entry), "entry": entry}
        section = content.get(kind)
        projects = {**(section if isinstance(section, dict) else {}), str(paths.project): given}
        write_own(path, {**content, kind: {folder: items for folder, items in projects.items() if items}})


def _select(content: Mapping[str, Any], kind: Kind, project: Path) -> Mapping[str, Any]:
    section = content.get(kind)
    found = section.get(str(project)) if isinstance(section, dict) else None
    return found if isinstance(found, dict) else {}
