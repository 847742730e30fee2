"""Decides whether the files of a project may be used, from pi's trust.json and the flags, without asking.

Looks only at names of protected files: nothing of a project is opened before it is trusted. Must not know what the
protected files do; `decisions` saves.
"""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value
from retinue.core.errors import quote
from retinue.settings.files import load_json
from retinue.settings.paths import CONFIG_FOLDERS, PROTECTED, Paths, has_entry

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a folder, independent of its name."""

EVERY_FOLDER = "*"
NOWHERE: Identity = (-1, -1)


class Binding(Struct, frozen=True):
    """What one decision was made about."""

    identity: Identity
    configs: Mapping[str, int] | None = None
    """The configuration folders in and below it at that time, relative, with their inodes; None: unknown."""


class Trust(Struct, frozen=True):
    trusted: bool
    """Whether the project's configuration is used."""
    reason: str
    protected: tuple[str, ...] = ()
    """The project's files that need trust, relative to it."""
    diagnostics: tuple[Diagnostic, ...] = ()
    notice: str = ""
    """A line for stderr if files are skipped without a decision; else empty."""
    is_open: bool = False
    """Whether nobody has decided and nothing needs a decision, so that our own files in it may be used."""


def decide_trust(paths: Paths, *, approve: bool | None, default: str = "ask") -> Trust:
    """Return the flag, else the closest saved decision, else the default; `ask` means no, because this cannot ask."""
    links = tuple(_find_links(paths))
    if approve is not None:
        return Trust(approve, "--approve" if approve else "--no-approve", find_protected(paths), links)
    decisions, problems = load_decisions(paths.trust_file)
    bindings, accepted, more = load_bindings(find_bindings_file(paths), paths.project)
    unusable = (*problems, *more)
    protected, diagnostics = find_protected(paths, accepted), (*links, *unusable)
    saved = _find_decision(paths, decisions)
    doubt = ""
    if saved is not None:
        folder, decision = saved
        doubt = _doubt_consent(paths, folder, bindings, protected) if decision else ""
        if not doubt:
            return Trust(decision, f"saved for {folder}", protected, diagnostics)
    # An unusable file may contain a refusal, so the default must not grant trust.
    if default == "never" or (default == "always" and not unusable):
        return Trust(default == "always", "defaultProjectTrust", protected, diagnostics)
    if not protected:
        return Trust(False, doubt or "nothing to protect", protected, diagnostics, is_open=not unusable)
    listed = ", ".join(protected[:4]) + (f" and {len(protected) - 4} more" if len(protected) > 4 else "")
    because = f" ({doubt})" if doubt else ""
    notice = (
        f"{quote(str(paths.project), 200)} is not trusted{because}: "
        f"skipped {listed} (use --approve to load them for this run)"
    )
    return Trust(False, doubt or "no decision", protected, diagnostics, notice)


def find_protected(paths: Paths, accepted: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the protected paths that a project has, except accepted files and folders that hold only such."""
    if paths.project == paths.home:
        return ()
    known = [name for name in PROTECTED if name.partition("/")[0] in paths.configs]
    return tuple(name for name in known if has_entry(paths.project / name) and not _is_accepted(paths, name, accepted))


def _is_accepted(paths: Paths, name: str, accepted: frozenset[str]) -> bool:
    """Return whether the user has accepted a file, or every file of a folder."""
    if name in accepted:
        return True
    if not any(each.startswith(f"{name}/") for each in accepted):
        return False
    try:
        entries = os.listdir(paths.project / name)
    except OSError:
        return False
    return all(f"{name}/{each}" in accepted for each in entries)


def _find_links(paths: Paths) -> Iterator[Diagnostic]:
    for path in (paths.project / name for name in CONFIG_FOLDERS if paths.project != paths.home):
        if path.is_symlink():
            text = f"{path}: is a link, so nothing in it is read; replace it with a real folder"
            yield Diagnostic(text, str(path), severity="warning", code="linked-config")


def load_decisions(path: Path) -> tuple[dict[str, bool], list[Diagnostic]]:
    """Load pi's decisions by canonical path. A file that is broken or writable by others decides nothing."""
    problem = find_exposure(path)
    if problem:
        text = f"{path}: {problem}; no saved decision is used"
        return {}, [Diagnostic(text, str(path), code="trust")]
    raw, diagnostics = load_json(path)
    decisions: dict[str, bool] = {}
    for folder, decision in (raw or {}).items():
        if isinstance(decision, bool):
            decisions[folder] = decision
        elif decision is not None:
            found = f"{path}: {quote(folder)}: found {show_value(decision)}"
            text = f"{found}; expected true, false or null; no saved decision is used"
            diagnostics.append(Diagnostic(text, str(path), code="trust", field=folder))
    return ({} if diagnostics else decisions), diagnostics


def find_bindings_file(paths: Paths) -> Path:
    """Return retinue's file with what decisions are bound to."""
    return paths.own_dir / "trust.json"


def load_bindings(path: Path, project: Path) -> tuple[dict[str, Binding], frozenset[str], list[Diagnostic]]:
    """Load what each decision was made about, and the files of the project that were accepted one by one.

    An unusable file invalidates every consent.
    """
    problem = find_exposure(path)
    raw, diagnostics = load_json(path)
    if problem:
        diagnostics.append(Diagnostic(f"{path}: {problem}; no saved consent is used", str(path), code="trust"))
    if diagnostics:
        return {EVERY_FOLDER: Binding(NOWHERE)}, frozenset(), diagnostics
    folders, files = ((raw or {}).get(key) for key in ("folders", "files"))
    items = folders.items() if isinstance(folders, dict) else ()
    own = files.get(str(project)) if isinstance(files, dict) else None
    return {folder: _read_binding(entry) for folder, entry in items}, frozenset(own or ()), diagnostics


def _read_binding(entry: Any) -> Binding:
    """Parse a binding; an invalid one matches no folder."""
    raw = entry if isinstance(entry, dict) else {}
    device, inode, configs = raw.get("device"), raw.get("inode"), raw.get("configs")
    identity = (device, inode) if isinstance(device, int) and isinstance(inode, int) else NOWHERE
    return Binding(identity, configs if isinstance(configs, dict) else None)


def identify(folder: Path) -> Identity | None:
    """Return device and inode of a folder; None if it does not exist."""
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino)


def _doubt_consent(paths: Paths, folder: str, bindings: Mapping[str, Binding], protected: Collection[str]) -> str:
    """Return why a saved yes does not apply here; empty if it does."""
    if is_too_wide(Path(folder), paths.home):
        return f"the decision for {folder} would trust everything in it"
    bound = bindings.get(EVERY_FOLDER) or bindings.get(folder)
    if bound is not None and bound.identity != identify(Path(folder)):
        return f"{folder} has been replaced since it was trusted"
    nested = _find_repository(paths.project, Path(folder))
    if nested is not None:
        return f"{nested} is a repository of its own inside {folder}"
    return _find_later(paths, folder, bound, protected)


def _find_later(paths: Paths, folder: str, bound: Binding | None, protected: Collection[str]) -> str:
    """Return why a configuration folder, created after the decision, is not covered by it; empty if there is none."""
    known = bound.configs if bound is not None else None
    for name in sorted({name.partition("/")[0] for name in protected}):
        path = paths.project / name
        # pi does not store which folders existed: its decision is about the folder itself.
        is_here = str(paths.project) == folder
        name = os.path.relpath(path, folder)
        # Agents cannot create missing configuration in the folder itself, but they can below it.
        is_same = known is not None and name in known and (is_here or (identify(path) or NOWHERE)[1] == known[name])
        if not (is_here if known is None else is_same):
            return f"{path} was not there when {folder} was trusted"
    return ""


def is_too_wide(folder: Path, home: Path | None) -> bool:
    """Return whether a folder contains the home directory: nobody can have reviewed all of that."""
    return folder == Path(folder.anchor) or (home is not None and home.resolve().is_relative_to(folder))


def _find_repository(project: Path, trusted: Path) -> Path | None:
    """Return the outermost repository between a trusted folder and the project: a clone is someone else's work."""
    between = [folder for folder in (project, *project.parents) if folder.is_relative_to(trusted) and folder != trusted]
    return next((folder for folder in reversed(between) if os.path.lexists(folder / ".git")), None)


def find_exposure(path: Path) -> str:
    """Return why other users may control a file; empty if it is the user's own."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if os.name == "posix" and status.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o}; run chmod 600)"
    if os.name == "posix" and status.st_uid not in (os.getuid(), 0):
        return "belongs to another user"
    return ""


def _find_decision(paths: Paths, decisions: Mapping[str, bool]) -> tuple[str, bool] | None:
    here = _find_closest(paths.cwd, decisions)
    # A yes for a folder inside the project does not cover the project's files; a no for the current folder always
    # applies.
    if here is not None and here[1] and not paths.project.is_relative_to(here[0]):
        return _find_closest(paths.project, decisions)
    return here


def _find_closest(folder: Path, decisions: Mapping[str, bool]) -> tuple[str, bool] | None:
    for candidate in (folder, *folder.parents):
        if str(candidate) in decisions:
            return str(candidate), decisions[str(candidate)]
    return None
