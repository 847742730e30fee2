"""Lets those runs of a crew be durable whose runner says so. Where none does, nothing of it is loaded."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.core.events import Event
from retinue.core.run import Outcome, Run
from retinue.engine.build import RunBuilder
from retinue.engine.recovery import Remains
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_file
from retinue.features.worktree.workshop import Workshop

if TYPE_CHECKING:  # most crews work without
    from retinue.durable.local.backend import Embedded
    from retinue.durable.local.writer import Scribe

FILE = "runs.db"


def is_there(path: Path) -> bool:
    """Whether there has been a durable run."""
    return path.exists()


class Enduring:
    """An outfitter that puts a record around durable runs."""

    def __init__(
        self,
        path: Path,
        main: LiveRun,
        inner: RunBuilder,
        choose: Callable[[Run, RunRequest], str],
        workshop: Workshop,
        warn: Callable[[str], None],
    ) -> None:
        """`path` is the ledger's; `choose` says with which runner a run works, and may raise RetinueError."""
        self._path = path
        self._main = main.session
        self._journal = main.journal
        self._inner = inner
        self._choose = choose
        self._workshop = workshop
        self._warn = warn
        self._embedded: Embedded | None = None
        self._scribe: Scribe | None = None
        self.returning: frozenset[str] = frozenset()
        """The runs of an earlier process that go on by themselves."""

    async def take_over(self, remains: Remains) -> None:
        """Find out which runs of an earlier process go on. What is wrong with the record is told, and stops nobody."""
        if not remains.runs or self._main.path is None or not is_there(self._path):
            return
        try:
            found = await self._need().take_over(remains.runs, remains.requests, self._warn)
        except RetinueError as error:
            self._warn(f"durable runs do not go on by themselves: {error}")
            return
        self.returning = frozenset(found)

    async def outfit(
        self, run: Run, request: RunRequest, parent: LiveRun, work: Callable[[LiveRun], Awaitable[Outcome]]
    ) -> Outcome:
        """As the one inside does; a durable run with a record around it."""
        if self._main.path is None or not self._is_durable(run, request):
            return await self._inner.outfit(run, request, parent, work)
        if run.id in self.returning and request.isolation == "worktree" and not run.branch:
            # Its copy may have been tidied up by another process, for another session.
            cwd = Path(request.cwd) if request.cwd else parent.setup.cwd
            run = replace(run, branch=await self._workshop.find_branch(run.id, cwd))
        return await self._need().outfit(run, request, parent, work, self._inner)

    def hear(self, event: Event) -> None:
        """Drop the record of what has ended."""
        if self._embedded is not None:
            self._embedded.hear(event)

    async def close(self) -> None:
        """Write what is left."""
        if self._scribe is not None:
            await self._scribe.close()

    def _is_durable(self, run: Run, request: RunRequest) -> bool:
        if run.id in self.returning:
            return True
        try:
            return self._choose(run, request) == "durable"
        except RetinueError:
            return False  # who outfits it will say so

    def _need(self) -> "Embedded":
        if self._embedded is None:
            from retinue.durable.local.backend import Embedded
            from retinue.durable.local.database import Ledger
            from retinue.durable.local.writer import Scribe

            self._scribe = Scribe(Ledger(self._path))
            self._embedded = Embedded(
                self._scribe,
                self._main,
                lambda run, request: find_file(self._main.tree, run.id, request),
                self._inner.tree.leases.charge,
                lambda: self._journal.is_saved,
            )
        return self._embedded
