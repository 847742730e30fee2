"""How a process is started inside a boundary, and where the file tools of a run may go: values and ports.

This file must not know which boundaries there are, nor how one is enforced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

from msgspec import Struct, field

Started = TypeVar("Started")


@dataclass(frozen=True, slots=True)
class Stdio:
    """The descriptors a process is given; all stay the caller's to close."""

    output: int
    error: int
    lifeline: int
    """Closed at its other end when nobody wants the process any longer."""
    input: int = -3
    """As for `subprocess`; nothing to read unless it is a descriptor."""


class Spawned(Protocol):
    """A process that somebody else started for us."""

    @property
    def pid(self) -> int:
        """Of the process that keeps it and all its descendants; 0 while that is not known."""
        ...

    def fileno(self) -> int:
        """Readable when there is something to poll for."""
        ...

    def poll(self) -> int | None:
        """How it ended, as `Popen.poll` says it; None while it works. Raises OSError when it was never started."""
        ...

    def close(self) -> None: ...


class Spawner(Protocol):
    """Starts processes that cannot be started as children of our own."""

    def spawn(self, launch: "Launch", stdio: Stdio) -> Spawned:
        """Start the command. Raises OSError when it cannot be."""
        ...


class Pen(Protocol):
    """A thread from which processes are started, so that they share its bounds."""

    def run(self, start: Callable[[], Started]) -> Started:
        """Call a function there and wait for it."""
        ...


def _do_nothing() -> None:
    """What a launch that holds nothing does in the end."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One command, ready to be started inside its boundary. A context manager: leave it when the command has ended."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    pass_fds: tuple[int, ...] = ()
    spawner: Spawner | None = None
    """None: start `argv` as it is; it makes the first process of a namespace, with which all others die."""
    layers: int = 1
    """Processes between the one we know and the command; they must live until the command has ended."""
    release: Callable[[], None] = _do_nothing
    pen: "Pen | None" = None
    """Whose thread must start it; None: anybody's."""
    max_memory: int = 0
    """Bytes that it and all it starts may have; 0 is as many as the system allows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Confining(Protocol):
    """Knows the boundary of one run, and draws it when a command needs it."""

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of variables that the user lets commands have beside the usual ones."""
        ...

    async def open(self) -> "Confinement | None":
        """The boundary; None: commands of this run have none."""
        ...

    async def open_readonly(self) -> "Confinement | None":
        """One in which nothing can be changed, whatever the run may do; None: this machine has none."""
        ...


class Confinement(Protocol):
    """The boundary of one run."""

    @property
    def summary(self) -> str:
        """What it is, in a few words, for the run's record."""
        ...

    @property
    def is_readonly(self) -> bool: ...

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        pass_fds: tuple[int, ...] = (),
        visible: Sequence[str] = (),
    ) -> Launch:
        """The command inside the boundary; `visible` are files of ours it must be able to read.

        Raises ToolFailed when it cannot be confined: it MUST NOT be run then.
        """
        ...

    def explain(self, output: str) -> str:
        """One line on what the boundary has to do with what a failed command printed; mostly nothing, and once each."""
        ...


class Territory(Struct, frozen=True):
    """Reading is free but for what is hidden; changing is not, unless nothing is said."""

    roots: tuple[str, ...] | None = None
    """Real paths of the directories below which files may be changed; None: everywhere."""
    hidden: tuple[str, ...] = ()
    """Real paths of files and directories that are not read, whatever name leads to them."""
    protected: tuple[str, ...] = ()
    """Real paths below the roots that are not changed, also where nothing is yet."""
    granted: tuple[str, ...] = ()
    """Directories that may be changed wherever they lie, also in what is protected."""
    exposed: tuple[str, ...] = ()
    """Real paths of directories that are read although what is around them is hidden."""
    made: set[str] = field(default_factory=set)
    """Configuration folders and repositories below the roots that agents have made, and may change for that."""
    list_guarded: Callable[[], tuple[str, ...]] = tuple
    """More that is not changed, as it is found when somebody asks."""


ANYWHERE = Territory()
