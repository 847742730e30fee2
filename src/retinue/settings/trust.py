"""Whether the files of a project may be used: pi's trust.json and the flags, for runs without a terminal.

Looks at the names of protected files only: nothing of a project is opened before it is trusted. This file must not know
what the protected files do, and saves nothing.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value
from retinue.core.errors import quote
from retinue.settings.files import load_json
from retinue.settings.paths import Paths

# What a clone may bring along that changes what the agent is, does or starts.
_IN_PI = (
    "settings.json",
    "mcp.json",
    "subagents.json",
    "agents",
    "extensions",
    "skills",
    "prompts",
    "themes",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
)
PROTECTED = (*(f".pi/{name}" for name in _IN_PI), ".agents", ".codingcode")


class Trust(Struct, frozen=True):
    """The answer for one project."""

    trusted: bool
    reason: str
    protected: tuple[str, ...] = ()
    """What the project has that needs trust, relative to it."""
    diagnostics: tuple[Diagnostic, ...] = ()
    notice: str = ""
    """One line for stderr when something is skipped and nobody decided so; else empty."""


def decide_trust(paths: Paths, *, approve: bool | None, default: str = "ask") -> Trust:
    """The flag, else the closest saved decision, else the default; `ask` is a no, since nobody can be asked here."""
    protected = find_protected(paths)
    if approve is not None:
        return Trust(approve, "--approve" if approve else "--no-approve", protected)
    decisions, problems = load_decisions(paths.trust_file)
    diagnostics = tuple(problems)
    saved = _find_decision(paths, decisions)
    if saved is not None:
        folder, decision = saved
        return Trust(decision, f"saved for {folder}", protected, diagnostics)
    if not protected:
        # An unusable file may hide a refusal, so it must not read as consent.
        return Trust(not problems, "nothing to protect", protected, diagnostics)
    if default == "always":
        return Trust(True, "defaultProjectTrust", protected, diagnostics)
    if default == "never":
        return Trust(False, "defaultProjectTrust", protected, diagnostics)
    listed = ", ".join(protected[:4]) + (f" and {len(protected) - 4} more" if len(protected) > 4 else "")
    notice = (
        f"{quote(str(paths.project), 200)} is not trusted: skipped {listed} (use --approve to load them for this run)"
    )
    return Trust(False, "no decision", protected, diagnostics, notice)


def find_protected(paths: Paths) -> tuple[str, ...]:
    """The protected files and directories a project has."""
    if paths.project == paths.home:
        return ()
    return tuple(name for name in PROTECTED if os.path.lexists(paths.project / name))


def load_decisions(path: Path) -> tuple[dict[str, bool], list[Diagnostic]]:
    """pi's decisions by canonical path. A file that others could have written, or that is broken, decides nothing."""
    problem = _find_exposure(path)
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


def _find_exposure(path: Path) -> str:
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
    # A yes for a folder inside the project does not cover the project's own files; a no for where we are always holds.
    if here is not None and here[1] and not paths.project.is_relative_to(here[0]):
        return _find_closest(paths.project, decisions)
    return here


def _find_closest(folder: Path, decisions: Mapping[str, bool]) -> tuple[str, bool] | None:
    for candidate in (folder, *folder.parents):
        if str(candidate) in decisions:
            return str(candidate), decisions[str(candidate)]
    return None
