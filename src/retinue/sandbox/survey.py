"""Find repositories and configuration folders at any depth of writable directories, before each command.

Unchanged directories are not listed again. What appears while a command runs counts as the agent's own and stays
writable until this process ends; everything else must be protected. Must not know how.
"""

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from retinue.core.pattern import late_pattern
from retinue.sandbox.gitdirs import is_hidden, list_steering, read_line, read_settings, read_worktree
from retinue.sandbox.profile import PRIVATE_DIRS, PROTECTED_DIRS, PROTECTED_FILES, is_below

_CONFIG = (*PROTECTED_DIRS, *PROTECTED_FILES)
MOST_FOLDERS = 100_000
MOST_PATHS = 150
"""Above this number whole folders are protected instead: each path makes every command slower."""
_PARTS = frozenset(("hooks", "config", "config.worktree", "commondir"))
_OBJECTS = late_pattern(r"[0-9a-f]{2}|info|pack")
_ELSEWHERE = ("/proc", "/sys", "/dev", *PRIVATE_DIRS)
"""Directories that differ inside a sandbox."""
# Some file systems have coarse timestamps: a folder that changed just now may change again without a new timestamp.
_FRESH_NS = 50_000_000
# A scan takes microseconds per folder; above _FEW folders, scans are at least _PAUSE_S apart per 1000 folders.
_FEW, _PAUSE_S = 1000, 1.0


class SurveyResult(Struct, frozen=True):
    """What one command must not change."""

    protected: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Missing files that would redirect git."""
    closed: tuple[str, ...] = ()
    """Folders that are protected as a whole, because they contain too much or cannot be read."""


class _Listing(Struct, frozen=True):
    changed_ns: int
    folders: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    is_shut: bool = False


class _SurveyedFolder:
    def __init__(self, root: str) -> None:
        self.root = root
        self.places: frozenset[str] = frozenset()
        self.closed: frozenset[str] = frozenset()
        self.running = 0
        self.has_run = False
        """Whether a command could have created what the next scan finds."""
        self._known: dict[str, _Listing] = {}
        self._looked_s = 0.0

    @property
    def is_cheap(self) -> bool:
        return len(self._known) <= _FEW

    def look(self) -> bool:
        """Scan the directory; returns False if a slow scan was skipped because the last one is recent."""
        now_s = time.monotonic()
        if not self.is_cheap and now_s - self._looked_s < _PAUSE_S * len(self._known) / 1000:
            return False
        found: dict[str, _Listing] = {}
        places: list[str] = []
        closed: list[str] = []
        waiting = deque((self.root,))
        while waiting and len(found) < MOST_FOLDERS:
            folder = waiting.popleft()
            try:
                changed_ns = os.lstat(folder).st_ctime_ns
            except OSError:
                continue
            listing = self._known.get(folder)
            if listing is None or listing.changed_ns != changed_ns:
                listing = _list(folder, changed_ns)
            found[folder] = listing
            places += listing.places
            closed += [folder] if listing.is_shut and folder != self.root else []
            waiting += listing.folders
        self._known = found
        self.places = frozenset(places)
        self.closed = frozenset((*closed, *(find_branch(self.root, each) for each in waiting)))
        self._looked_s = now_s
        return True


class Survey:
    """Scan results for all runs of a process."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        """Repositories and configuration folders that appeared while commands ran."""
        self._grounds: dict[str, _SurveyedFolder] = {}
        self._kept: set[str] = set()
        self._parts: dict[str, list[tuple[str, bool]]] = {}
        """The protected parts of each place when last readable: an agent may remove our access to its own files."""
        self._lock = threading.Lock()

    def look(self, roots: Iterable[str]) -> None:
        """Scan before any command runs, because the first scan may take long."""
        with self._lock:
            for ground in self._enter(roots):
                self._look(ground)

    def list_guarded(self, roots: tuple[str, ...], home: str) -> tuple[str, ...]:
        """Return the paths that file tools must not change."""
        with self._lock:
            found = self._find(roots, home)
        return (*found.protected, *found.forbidden)

    def begin(self, roots: tuple[str, ...], home: str) -> SurveyResult:
        """Register the start of a command, which must call `end` once; returns what it must not change."""
        with self._lock:
            found = self._find(roots, home)
            for ground in self._enter(roots):
                ground.running += 1
                ground.has_run = True
        return found

    def _find(self, roots: tuple[str, ...], home: str) -> SurveyResult:
        protected: list[str] = []
        forbidden: list[str] = []
        closed: list[str] = []
        for ground in self._enter(roots):
            self._look(ground)
            inner = [root for root in roots if root != ground.root and is_below(root, [ground.root])]
            kept = [each for each in self._kept if is_below(each, [ground.root]) and not is_below(each, inner)]
            parts = [part for place in sorted(kept) for part in self._list_parts(place, home)]
            for total, part in zip((protected, forbidden, closed), _gather(ground, parts), strict=True):
                total += [path for path in part if path not in roots and is_below(path, roots)]
        return SurveyResult(tuple(protected), tuple(forbidden), tuple(closed))

    def _list_parts(self, place: str, home: str) -> list[tuple[str, bool]]:
        if place not in self._parts or os.access(place, os.R_OK | os.X_OK):
            self._parts[place] = list(_list_parts(place, home))
        return self._parts[place]

    def end(self, roots: Iterable[str]) -> None:
        with self._lock:
            for ground in self._enter(roots):
                ground.running -= 1
                if not self._look(ground) and not ground.running:
                    # Nothing shows what the command created, so the next finds may be the user's.
                    ground.has_run = False

    def _enter(self, roots: Iterable[str]) -> list[_SurveyedFolder]:
        if any(root not in self._grounds for root in roots):
            kept = {root: ground for root, ground in self._grounds.items() if ground.running or os.path.isdir(root)}
            self._grounds = {root: _SurveyedFolder(root) for root in roots} | kept
        return [self._grounds[root] for root in roots]

    def _look(self, ground: _SurveyedFolder) -> bool:
        if not ground.look():
            return False
        for known in (self.made, self._kept):
            # A path that only became unreadable still exists; otherwise an agent could hide it and get it back as its
            # own.
            known -= {each for each in known - ground.places if _is_gone(each)}
        (self.made if ground.has_run else self._kept).update(ground.places - self._kept - self.made)
        ground.has_run = ground.running > 0
        return True


def find_guard(path: str, root: str, made: set[str]) -> str:
    """Return the protected path that is or contains a real path below `root`; empty if there is none.

    The caller is about to create missing paths, so missing configuration folders are added to `made`.
    """
    folder = root.rstrip("/")
    for name in path[len(folder) :].strip("/").split("/"):
        around, folder = folder, f"{folder}/{name}"
        word = name.lower()
        if word in _CONFIG and folder not in made:
            if os.path.lexists(folder):
                return folder
            made.add(folder)
        if word == ".git" and folder == path and folder not in made and os.path.isfile(folder):
            return folder
        if word in _PARTS and around not in made and _is_git(around):
            return folder
        git = f"{around}/.git"
        if around != root and git not in made and os.path.isdir(git):
            steering = next((each for each in _list_steering(git, "")[0] if f"{path}/".startswith(f"{each}/")), "")
            if steering:
                return steering
    return ""


def find_branch(root: str, path: str) -> str:
    """Return the folder directly below the root, or below its `.git`, that contains the path."""
    top = root.rstrip("/")
    names = path[len(top) :].strip("/").split("/")
    return "/".join((top, *names[: 2 if names[0] == ".git" else 1]))


def _list(folder: str, changed_ns: int) -> _Listing:
    names: set[str] = set()
    folders: list[str] = []
    places: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                names.add(name)
                is_dir = entry.is_dir(follow_symlinks=False)
                word = name.lower() if name[0] == "." else ""
                if word in _CONFIG or (word == ".git" and not is_dir):
                    places += [] if entry.is_symlink() else [entry.path]
                elif is_dir and entry.path not in _ELSEWHERE:
                    folders.append(entry.path)
    except OSError:
        # Its owner could make it readable.
        return _Listing(0, is_shut=_is_own(folder))
    if os.path.basename(folder).lower() == ".git" or (names & {"HEAD", "commondir"} and _is_git(folder)):
        places.append(folder)
    elif os.path.basename(folder) == "objects" and _is_git(os.path.dirname(folder)):
        folders = [path for path in folders if not _OBJECTS.fullmatch(os.path.basename(path))]
    is_fresh = time.time_ns() - changed_ns < _FRESH_NS
    return _Listing(0 if is_fresh else changed_ns, tuple(folders), tuple(places))


def _is_git(folder: str) -> bool:
    is_record = os.path.lexists(f"{folder}/commondir") and (
        os.path.lexists(f"{folder}/HEAD") or os.path.basename(os.path.dirname(folder)) == "worktrees"
    )
    # Git follows links to these parts, so the check must, too.
    is_whole = all(os.path.lexists(f"{folder}/{name}") for name in ("HEAD", "objects", "refs"))
    return os.path.basename(folder).lower() == ".git" or is_record or is_whole


def _is_gone(path: str) -> bool:
    """Return whether a path does not exist; an unreadable path may exist."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _is_own(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def _gather(ground: _SurveyedFolder, parts: list[tuple[str, bool]]) -> tuple[list[str], list[str], list[str]]:
    """Return protected, forbidden and closed paths; if there are too many, protect their folders instead."""
    paths = dict.fromkeys(path for path, is_there in parts if is_there)
    forbidden = [path for path, is_there in parts if not is_there]
    closed = {*ground.closed}
    crowds = Counter(find_branch(ground.root, path) for path in paths)
    left = len(paths)
    for branch, count in crowds.most_common():
        if left <= MOST_PATHS or count == 1:
            break
        closed.add(branch)
        left -= count - 1
    kept = [path for path in paths if find_branch(ground.root, path) not in closed]
    return [*kept, *sorted(closed)], forbidden, sorted(closed)


def _list_parts(place: str, home: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a place: with True those to protect, with False those that must not appear."""
    if not os.path.isdir(place) or os.path.basename(place).lower() in _CONFIG:
        yield place, True
        if os.path.basename(place).lower() == ".git" and _has_hidden_config(place):
            # Its hooks may be anywhere in the checkout.
            yield os.path.dirname(place), True
        return
    pointer, own = f"{place}/commondir", f"{place}/config.worktree"
    yield pointer, os.path.lexists(pointer)
    if os.path.lexists(own) or (os.access(place, os.W_OK) and _has_own_config(place)):
        yield own, True
    if os.path.basename(os.path.dirname(place)) == "worktrees" and os.path.lexists(pointer):
        yield f"{place}/gitdir", True
        common = os.path.dirname(os.path.dirname(place))
        configs = (f"{common}/config", f"{common}/config.worktree", f"{place}/config.worktree")
        checkout = os.path.dirname(read_line(f"{place}/gitdir"))
        if checkout:
            hooks, _ = list_steering((*configs, *_list_users(home)), checkout, home)
            yield from ((path, True) for path in hooks)
        return
    for part in (f"{place}/hooks", f"{place}/config"):
        if os.path.lexists(part) or os.access(place, os.W_OK):
            yield part, True
        elif _is_own(place):
            # The missing file cannot be covered, but the owner could make the folder writable.
            yield place, True
    hooks, files = _list_steering(place, home)
    if any(map(is_hidden, (f"{place}/config", *files))):
        yield os.path.dirname(place) if os.path.basename(place).lower() == ".git" else place, True
    yield from ((path, True) for path in hooks)
    yield from ((path, os.path.lexists(path)) for path in files)


def _has_own_config(place: str) -> bool:
    """Return whether git reads `config.worktree` here (extensions.worktreeConfig of the common repository)."""
    common = os.path.dirname(os.path.dirname(place)) if os.path.lexists(f"{place}/commondir") else place
    told = dict(read_settings(f"{common}/config"))
    return told.get("extensions.worktreeconfig", "false").lower() not in ("false", "no", "off", "0")


def _has_hidden_config(pointer: str) -> bool:
    """Return whether a checkout's repository has configuration that cannot be read now."""
    own = os.path.join(os.path.dirname(pointer), read_line(pointer).removeprefix("gitdir:").strip())
    common = os.path.join(own, read_line(f"{own}/commondir"))
    return any(map(is_hidden, (f"{own}/commondir", f"{common}/config", f"{common}/config.worktree")))


def _list_steering(git: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    around = os.path.dirname(git) if os.path.basename(git).lower() == ".git" else read_worktree(git)
    return list_steering((f"{git}/config", f"{git}/config.worktree", *_list_users(home)), around, home)


def _list_users(home: str) -> tuple[str, ...]:
    return (f"{home}/.gitconfig", f"{home}/.config/git/config") if home else ()
