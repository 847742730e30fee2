"""What of a project's own configuration the user has agreed to start, each bound to its exact words.

Kept in `<agent-dir>/retinue/trust.json` beside what decisions about folders are bound to. A changed entry is another
entry. This file must not know what the entries mean.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson
from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.features.approved import ProjectGround
from retinue.sessions.files import make_private
from retinue.settings.decisions import hold_lock, replace_own
from retinue.settings.files import load_json
from retinue.settings.paths import Paths
from retinue.settings.trust import find_bindings_file, find_exposure

Kind: TypeAlias = Literal["mcp", "hooks", "extensions", "files"]
State: TypeAlias = Literal["ready", "disabled", "unapproved", "changed"]
"""Of an entry: what is neither ready nor disabled waits for the user."""


class Consent(Struct, frozen=True):
    """One entry that was agreed to."""

    digest: str
    entry: Any = None
    """As it was then, to show what has changed."""


class Consents:
    """What was agreed to in one project, read when something of it asks."""

    def __init__(self, paths: Paths, kind: Kind, problems: list[Diagnostic], *, trusted: bool = True) -> None:
        """In a folder that is not trusted nothing counts as agreed to."""
        self._paths = paths
        self._kind = kind
        self._problems = problems
        self._given: dict[str, Consent] | None = None if trusted else {}

    @property
    def given(self) -> Mapping[str, Consent]:
        """All of them, by name."""
        if self._given is None:
            self._given, problems = load_consents(self._paths, self._kind)
            self._problems += problems
        return self._given

    def judge(self, name: str, entry: Any) -> State:
        """Whether an entry may be started as it is now."""
        consent = self.given.get(name)
        if consent is None:
            return "unapproved"
        return "ready" if consent.digest == digest_entry(name, entry) else "changed"


def find_ground(paths: Paths, folder: str = "") -> ProjectGround:
    """Where the files are that count as the project's; `folder` is where an entry wants its program to run."""
    home = paths.home
    place = home / folder[2:] if home is not None and folder.startswith("~/") else paths.cwd / folder
    own = (paths.agent_dir,) if home is None else (paths.agent_dir, home / ".codingcode")
    return ProjectGround(paths.project, place, home, own)


def tell_waiting(state: State) -> str:
    """What is wrong with an entry that waits for the user, in a few words; else nothing."""
    return {"unapproved": "is not approved", "changed": "has changed since it was approved"}.get(state, "")


def digest_entry(name: str, entry: Any) -> str:
    """What an approval of an entry is bound to: its name and every word of it."""
    text = json.dumps([name, entry], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_consents(paths: Paths, kind: Kind) -> tuple[dict[str, Consent], list[Diagnostic]]:
    """What was agreed to in this project, by name. A file that others could have written agrees to nothing."""
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
    """The agent files of this project that were accepted one by one, by path, each with what it held."""
    given = load_consents(paths, "files")[0]
    return {
        str(paths.project / name): str(consent.entry.get("sha256"))
        for name, consent in given.items()
        if isinstance(consent.entry, dict) and consent.digest == digest_entry(name, consent.entry)
    }


def describe_content(data: bytes) -> dict[str, str]:
    """What an approval of a file is bound to."""
    return {"sha256": hashlib.sha256(data).hexdigest()}


def save_consent(paths: Paths, kind: Kind, name: str, entry: Any) -> None:
    """Agree to an entry of this project as it is now, or take it back with None. Raises ConfigError."""
    path = find_bindings_file(paths)
    if problem := find_exposure(path):
        raise ConfigError(f"{path}: {problem}; nothing is saved")
    try:
        make_private(path.parent)
        # The lock of pi's file, under which ours is written elsewhere too.
        with hold_lock(paths.trust_file):
            _write(paths, path, kind, name, entry)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _write(paths: Paths, path: Path, kind: Kind, name: str, entry: Any) -> None:
    raw, problems = load_json(path)
    if problems:
        raise ConfigError(f"{problems[0].message}; repair or remove the file first")
    content: dict[str, Any] = dict(raw or {"version": 1})
    given = dict(_select(content, kind, paths.project))
    given.pop(name, None)
    if entry is not None:
        given[name] = {"hash": digest_entry(name, entry), "entry": entry}
    section = content.get(kind)
    projects = dict(section) if isinstance(section, dict) else {}
    projects[str(paths.project)] = given
    kept = {folder: items for folder, items in projects.items() if items}
    replace_own(path, orjson.dumps({**content, kind: kept}, option=orjson.OPT_INDENT_2) + b"\n")


def _select(content: Mapping[str, Any], kind: Kind, project: Path) -> Mapping[str, Any]:
    section = content.get(kind)
    found = section.get(str(project)) if isinstance(section, dict) else None
    return found if isinstance(found, dict) else {}
