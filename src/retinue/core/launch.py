"""Start processes inside a sandbox, and limit the paths of file tools: values and interfaces.

This file must not know which sandboxes exist or how they are enforced.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

from msgspec import Struct, field

Started = TypeVar("Started")


class Stdio(Struct, frozen=True):
    """The file descriptors given to a process; the caller must close all of them."""

    output: int
    error: int
    lifeline: int
    """The other end is closed when the process is no longer wanted."""
    input: int = -3
    """As for `subprocess`; the default gives the process no input."""


class Spawned(Protocol):
    """A process that another program started for us."""

    @property
    def pid(self) -> int:
        """Pid of the process that holds this one and all its descendants; 0 until it is known."""
        ...

    def fileno(self) -> int:
        """Readable when `poll` has something new."""
        ...

    def poll(self) -> int | None:
        """The exit status as in `Popen.poll`; None while it runs. Raises OSError if it was never started."""
        ...

    def close(self) -> None: ...


class Spawner(Protocol):
    """Starts processes that cannot be our own children."""

    def spawn(self, launch: "Launch", stdio: Stdio) -> Spawned:
        """Start the command. Raises OSError if that fails."""
        ...


class SpawnThread(Protocol):
    """A thread that starts processes, so that they share its limits."""

    def run(self, start: Callable[[], Started]) -> Started:
        """Call a function in that thread and wait for it."""
        ...


def _do_nothing() -> None: ...


class Launch(Struct, frozen=True):
    """One command, ready to start inside its sandbox. A context manager: exit it when the command has ended."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    pass_fds: tuple[int, ...] = ()
    spawner: Spawner | None = None
    """None: start `argv` directly. It creates the first process of a PID namespace, and all others die with it."""
    layers: int = 1
    """Processes between the one we start and the command; they must live until the command has ended."""
    release: Callable[[], None] = _do_nothing
    spawn_thread: "SpawnThread | None" = None
    """The thread that must start it; None: any thread."""
    max_memory: int = 0
    """Bytes for the command and all its descendants; 0: no limit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class ConfinementFactory(Protocol):
    """Creates the sandbox of one run when a command needs it."""

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of variables that the user passes to commands in addition to the default ones."""
        ...

    async def open(self) -> "Confinement | None":
        """The sandbox; None if commands of this run have none."""
        ...

    async def open_readonly(self) -> "Confinement | None":
        """A sandbox in which nothing can be changed, whatever the run may do; None if this machine has none."""
        ...


class Confinement(Protocol):
    """The sandbox of one run."""

    @property
    def summary(self) -> str:
        """A few words for the run's record."""
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
        """Wrap a command to run in the sandbox; `visible` are our own files that it must be able to read.

        Raises ToolFailed if the command cannot be confined: it MUST NOT be run then.
        """
        ...

    def explain(self, output: str) -> str:
        """One line that says how the sandbox caused this output of a failed command; empty if it did not. Said once."""
        ...


class Territory(Struct, frozen=True):
    """Where file tools may read and write: all is readable except `hidden`; without `roots`, all is writable."""

    roots: tuple[str, ...] | None = None
    """Real paths of directories in which files may be changed; None: everywhere."""
    hidden: tuple[str, ...] = ()
    """Real paths of files and directories that must not be read, whatever path leads to them."""
    protected: tuple[str, ...] = ()
    """Real paths below the roots that must not be changed or created."""
    granted: tuple[str, ...] = ()
    """Directories that may be changed wherever they are, even inside a protected one."""
    exposed: tuple[str, ...] = ()
    """Real paths of directories that may be read although their parent is hidden."""
    made: set[str] = field(default_factory=set)
    """Configuration folders and repositories below the roots that agents created, and may therefore change."""
    list_guarded: Callable[[], tuple[str, ...]] = tuple
    """Returns more paths that must not be changed, found at the time of the call."""


ANYWHERE = Territory()
