"""Other sessions for the same Retinue: a new one, one of a file, a fork of the present one.

What is here decides which session that is; going over to it is the Retinue's.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from retinue.core.clock import Clock
from retinue.core.errors import SessionError, UsageError, quote
from retinue.engine.bus import Listener
from retinue.engine.ids import make_uuid
from retinue.engine.journal import CREW, RECORD
from retinue.engine.runner import LiveRun
from retinue.sessions.log import Session

_LONGEST_PATH = 4096
_OWN = (CREW, RECORD)
"""Entries about runs: they belong to the session that started them, not to its forks."""


class Audience:
    """Who listens to a Retinue, in whatever session it works."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[Listener, bool]] = {}
        self._stops: dict[int, Callable[[], None]] = {}
        self._number = 0

    def listen(self, main: LiveRun, listener: Listener, *, pieces: bool) -> Callable[[], None]:
        """Have it called with each event; returns what ends that."""
        self._number += 1
        number = self._number
        self._listeners[number] = listener, pieces
        self._stops[number] = main.bus.listen(listener, pieces=pieces)
        return lambda: self._forget(number)

    def move(self, main: LiveRun) -> None:
        """Go over to another main agent; the former one is closed."""
        for number, (listener, pieces) in self._listeners.items():
            self._stops[number]()
            self._stops[number] = main.bus.listen(listener, pieces=pieces)

    def _forget(self, number: int) -> None:
        if self._listeners.pop(number, None) is not None:
            self._stops.pop(number)()


class Sessions:
    """The other sessions one main agent can go over to. What fails leaves everything as it was."""

    def __init__(
        self, main: LiveRun, directory: Path, clock: Clock, enter: Callable[[Session], Awaitable[None]]
    ) -> None:
        """`directory` is where new sessions are kept; `enter` goes over to a session that is open."""
        self._main = main
        self._present = main.session
        self._cwd = str(main.setup.cwd)
        """Where it works, whatever its session says."""
        self._directory = directory
        self._clock = clock
        self._enter = enter

    async def begin(self, parent: str | None = None) -> None:
        """Go over to a new one; `parent` is the file it comes from."""
        await self._enter(self._make(parent))

    async def open(self, path: str) -> None:
        """Go over to that of a file; one that does not exist yet is begun there, as pi does. Raises RetinueError."""
        await self._enter(self._load(path))

    async def fork(self, entry_id: str) -> str:
        """Go over to a copy that ends before something the user has said; returns that. Raises RetinueError."""
        from retinue.views.history import Chronicle

        text, before = Chronicle(self._main).find_prompt(entry_id)
        await self._enter(self._copy(before))
        return text

    async def clone(self) -> None:
        """Go over to a copy. Raises RetinueError when nothing has been said yet."""
        if self._present.leaf_id is None:
            raise SessionError("Cannot clone session: nothing has been said in it yet")
        await self._enter(self._copy(self._present.leaf_id))

    def _load(self, path: str) -> Session:
        if not path.strip() or "\0" in path or len(path) > _LONGEST_PATH:
            raise UsageError(f"{quote(path)} is no path of a session file")
        present, clock = self._present, self._clock
        file = Path(self._cwd, Path(path).expanduser())
        if not file.exists():
            if not file.parent.is_dir():
                raise SessionError(f"there is no session file {quote(str(file), 300)}, and no folder to make it in")
            return Session.create(cwd=self._cwd, directory=None, path=file, clock=clock, new_id=make_uuid)
        if present.path is not None and present.path.exists() and file.samefile(present.path):
            raise SessionError(f"session {present.id} is the one that is open")
        return Session.open(file, clock=clock, new_id=make_uuid, cwd=self._cwd)

    def _make(self, parent: str | None) -> Session:
        """Kept if the present one is."""
        directory = None if self._present.path is None else self._directory
        return Session.create(
            cwd=self._cwd, directory=directory, parent_session=parent, clock=self._clock, new_id=make_uuid
        )

    def _copy(self, leaf_id: str | None) -> Session:
        session = self._make(None if self._present.path is None else str(self._present.path))
        try:
            session.copy_branch(self._present, leaf_id, leave_out=_OWN)
        except BaseException:
            session.close()
            raise
        return session
