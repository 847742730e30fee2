"""Find extensions by file names and entry points, and select those a run gets. Executes none of them.

The folder of an untrusted project is not even listed. Must not know which run wants what.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.definition import Definition, Selection
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.features.nofollow import Folder, is_safe_name
from retinue.tools.selectors import list_extensions, to_extension_name

Source: TypeAlias = Literal["path", "project", "user", "installed"]


class Candidate(Struct, frozen=True):
    """An extension that exists; none of its code has run."""

    name: str
    """The file's stem or the entry point's name; case does not matter."""
    source: Source
    path: str = ""
    """The file; empty for an installed extension."""
    entry: str = ""
    """The target of an installed extension's entry point: `module` or `module:function`."""

    @property
    def place(self) -> str:
        return self.path or self.entry


class WantedExtensions(Struct, frozen=True):
    """The extensions that one run asks for."""

    selection: Selection = True
    """All, none, or a list of names, paths and `*` for all that are found."""
    excluded: tuple[str, ...] = ()
    isolated: bool = False
    always: tuple[str, ...] = ()
    """Extensions that the user gives to every agent that has extensions at all."""

    @property
    def is_none(self) -> bool:
        return self.isolated or self.selection is False

    @property
    def paths(self) -> tuple[str, ...]:
        """The entries that are files, without excluded ones."""
        if self.is_none or isinstance(self.selection, bool):
            return ()
        banned = to_names(self.excluded)
        return tuple(entry for entry in self.selection if is_path(entry) and to_extension_name(entry) not in banned)


def to_wanted(definition: Definition, *, isolated: bool = False, always: Iterable[str] = ()) -> WantedExtensions:
    """Return what a run of a definition asks for; `isolated` is the caller's option in addition to the definition's."""
    return WantedExtensions(
        definition.extensions,
        definition.exclude_extensions,
        isolated or bool(definition.isolated),
        tuple(always),
    )


def choose_extensions(candidates: Iterable[Candidate], wanted: WantedExtensions) -> tuple[Candidate, ...]:
    """Return the candidates that a run gets, in order; only the first of each name."""
    if wanted.is_none:
        return ()
    listed = list_extensions(wanted.selection)
    exposed, banned = {name.lower() for name in wanted.always}, to_names(wanted.excluded)
    chosen: dict[str, Candidate] = {}
    for candidate in candidates:
        name = candidate.name.lower()
        if name not in banned and (listed is None or name in listed or name in exposed):
            chosen.setdefault(name, candidate)
    return tuple(chosen.values())


def to_names(entries: Iterable[str]) -> frozenset[str]:
    return frozenset(to_extension_name(entry) for entry in entries)


def is_path(entry: str) -> bool:
    """Return whether a list entry is a file path rather than a name."""
    return "/" in entry or "\\" in entry or entry.startswith("~")


GROUP = "retinue.extensions"
PROJECT_STEPS = (".pi", "extensions")
MAX_ENTRIES = 1000
MAX_SOURCE_BYTES = 1 << 20
MAX_METADATA_BYTES = 1 << 18
RESERVED_NAMES = frozenset(("mcp",))
"""Names with another meaning in extension lists."""


class ExtensionFolders(Struct, frozen=True):
    """Where extensions may come from, and whether the project is trusted."""

    cwd: Path
    agent_dir: Path
    project: Path | None = None
    trusted: bool = False
    """Whether code of the project may run."""
    home: Path | None = None
    search: tuple[str, ...] | None = None
    """Folders with installed distributions; None means Python's import path."""
    configs: tuple[str, ...] = PROJECT_STEPS[:1]
    """The project's configuration folders that may be read."""
    chosen: frozenset[str] = frozenset()
    """Files given on the command line; they need no approval."""


class FoundExtensions(Struct, frozen=True):
    """All extensions found, highest precedence first, and diagnostics about skipped ones."""

    candidates: tuple[Candidate, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def _skip(path: str, problem: str, code: str = "extension-file") -> Diagnostic:
    return Diagnostic(f"{path}: {problem}; skipped", path, severity="warning", code=code)


def find_extensions(places: ExtensionFolders) -> FoundExtensions:
    """Search project, user and installed packages; the first of each name wins, and diagnostics report the others."""
    problems: list[Diagnostic] = []
    found: dict[str, Candidate] = {}
    for candidate in _find_all(places, problems):
        name = candidate.name.lower()
        if name in RESERVED_NAMES:
            problems.append(_skip(candidate.place, f"the name {quote(candidate.name)} is reserved", "extension-name"))
        elif name in found:
            problem = f"there is already an extension {quote(candidate.name)}: {found[name].place}"
            problems.append(_skip(candidate.place, problem, "extension-shadowed"))
        else:
            found[name] = candidate
    return FoundExtensions(tuple(found.values()), tuple(problems))


def find_path(entry: str, places: ExtensionFolders) -> Candidate | Diagnostic:
    """Return the extension that a path in an agent's list names, or a diagnostic."""
    path = _expand(entry, places)
    name = to_extension_name(entry)
    problem = ""
    if path is None:
        problem = "is not a usable path"
    elif path.suffix != ".py":
        problem = "is not a Python file"
    elif not is_safe_name(name) or name in RESERVED_NAMES:
        problem = f"{quote(name)} cannot be the name of an extension"
    elif not places.trusted and str(path) not in places.chosen and _is_inside(path, places.project):
        problem = "belongs to a project that is not trusted"
    if problem or path is None:
        text = f"extension {quote(entry)}: {problem}; not loaded"
        return Diagnostic(text, str(path or ""), code="extension-path")
    return Candidate(name, "path", str(path))


def read_source(candidate: Candidate, places: ExtensionFolders) -> bytes:
    """Read the code of a file, at most one byte more than is accepted. Raises OSError."""
    path = Path(candidate.path)
    if candidate.source != "project":  # users may link files from elsewhere into their own folder
        path = path.resolve()
    with _open_folder(path.parent, places, candidate.source) as folder:
        return folder.read(path.name, MAX_SOURCE_BYTES)


def list_search_paths(places: ExtensionFolders) -> tuple[str, ...]:
    """Return Python's import path without the working directory, whose content may be untrusted."""
    avoided = {os.path.realpath(folder) for folder in (places.cwd, places.project, os.getcwd()) if folder is not None}
    absolute = (folder for folder in sys.path if os.path.isabs(folder))
    return tuple(folder for folder in absolute if os.path.realpath(folder) not in avoided)


def _find_all(places: ExtensionFolders, problems: list[Diagnostic]) -> Iterator[Candidate]:
    user = places.agent_dir / "extensions"
    if places.project is not None and places.trusted and PROJECT_STEPS[0] in places.configs:
        folder = places.project.joinpath(*PROJECT_STEPS)
        if os.path.realpath(folder) != os.path.realpath(user):
            yield from _list_files(folder, places, "project", problems)
    yield from _list_files(user, places, "user", problems)
    search = list_search_paths(places) if places.search is None else places.search
    for name, value in _list_installed(search, problems):
        if is_safe_name(name):
            yield Candidate(name, "installed", entry=value)
        else:
            problems.append(_skip(value, f"{quote(name)} cannot be the name of an extension", "extension-name"))


def _list_files(path: Path, places: ExtensionFolders, source: Source, problems: list[Diagnostic]) -> list[Candidate]:
    follow = source == "user"
    found: list[Candidate] = []
    try:
        with _open_folder(path, places, source) as folder:
            entries = folder.list(MAX_ENTRIES)
            for entry in entries:
                if not entry.name.endswith(".py") or entry.name.startswith(("_", ".")):
                    continue
                problem = ""
                if entry.is_symlink() and not follow:
                    problem = "is a symbolic link"
                elif not entry.is_file(follow_symlinks=follow):
                    problem = "is not a regular file"
                elif not is_safe_name(entry.name[:-3]):
                    problem = f"{quote(entry.name[:-3])} cannot be the name of an extension"
                if problem:
                    problems.append(_skip(str(path / entry.name), problem))
                else:
                    found.append(Candidate(entry.name[:-3], source, str(path / entry.name)))
            if len(entries) >= MAX_ENTRIES:
                problems.append(_skip(str(path), f"only the first {MAX_ENTRIES} entries were read"))
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(_skip(str(path), (error.strerror or str(error)).lower()))
    return found


def _open_folder(path: Path, places: ExtensionFolders, source: Source) -> Folder:
    if source == "project" and places.project is not None:
        return Folder.open(places.project, follow=True).walk(PROJECT_STEPS)
    return Folder.open(path, follow=True)


def _list_installed(search: Sequence[str], problems: list[Diagnostic]) -> Iterator[tuple[str, str]]:
    for folder in search:
        for path in _find_metadata(folder):
            # Slow to import, and rarely needed.
            from importlib.metadata import Distribution

            try:
                points = Distribution.at(path).entry_points.select(group=GROUP)
                yield from sorted((point.name, point.value) for point in points)
            except (OSError, ValueError, TypeError) as error:
                problems.append(_skip(str(path), f"cannot be read ({type(error).__name__})", "extension-metadata"))


def _find_metadata(folder: str) -> list[Path]:
    """Return the distributions in a folder that mention our entry point group."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return []
    return [Path(folder, name) for name in names if _mentions_group(f"{folder}{os.sep}{name}")]


def _mentions_group(path: str) -> bool:
    """Check the file's stat each time and read it only if it changed: there may be hundreds of distributions."""
    try:
        told = os.lstat(f"{path}{os.sep}entry_points.txt")
        return _reads_group(path, (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns))
    except OSError:
        return False


@lru_cache(maxsize=4096)
def _reads_group(path: str, stamp: tuple[int, ...]) -> bool:
    """Return whether entry_points.txt mentions our group; cached by its stat. Raises OSError."""
    with Folder.open(Path(path), follow=True) as folder:
        return GROUP.encode() in folder.read("entry_points.txt", MAX_METADATA_BYTES)


def _expand(entry: str, places: ExtensionFolders) -> Path | None:
    text = entry.strip()
    if "\0" in text:
        return None
    if text.startswith("~"):
        if places.home is None or text[1:2] not in ("", "/"):
            return None
        return Path(os.path.normpath(f"{places.home}/{text[1:]}"))
    return Path(os.path.normpath(places.cwd / text))


def _is_inside(path: Path, project: Path | None) -> bool:
    """Return whether a file is in the project, by its path or its real path."""
    if project is None:
        return False
    real = os.path.realpath(project)
    return any(Path(each).is_relative_to(top) for each in (path, os.path.realpath(path)) for top in (project, real))
