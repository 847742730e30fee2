"""A worker: takes runs from the queues, executes them, and writes their records.

The execution itself is a port; this file claims, restores, reports and ends runs.
"""

import asyncio
import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.core.environment import EXPOSED, WORKER_DIR
from retinue.core.errors import RetinueError, quote
from retinue.core.events import Event
from retinue.core.run import Outcome, Reason, Status
from retinue.core.terminal import escape_line
from retinue.durable.cluster.approval import ApprovalRequest, bring_case
from retinue.durable.cluster.assignment import CHANNEL, Assignment, RunMessage
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.database import Database, unpack_json
from retinue.durable.cluster.dbos_queues import ROOM, WaitingRuns, WorkerQueues, prepare_engine
from retinue.durable.cluster.membership import Membership
from retinue.durable.cluster.record import Claim, RunTakenOver
from retinue.durable.cluster.repository_cache import prune_cache
from retinue.durable.cluster.shared_budget import RemainingBudget
from retinue.durable.cluster.upgrade import upgrade_tables
from retinue.durable.cluster.worker_events import EventBatches
from retinue.durable.cluster.worker_folder import FolderWatch, is_ours
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, read_bundle
from retinue.durable.recorded_run import SNAPSHOT, RecordFeature, RunRecorder, Snapshot, WorkspaceSnapshots
from retinue.durable.session_files import SESSION, RecordPart, SessionFolder
from retinue.durable.trouble import TroubleNotifier

if TYPE_CHECKING:
    from retinue.durable.cluster.worker_host import HostedRun

DROP_S = 10.0
CACHE_BYTES = 20 << 30
"""Maximum size of the cache of fetched repositories."""
PLACE = "place"
"""Kind of a record piece that names the folder in which a run has worked."""
MOST_TOLD = 1000
WORD_S = 1.0
"""Delay of a message if its notification is lost."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """One run for its host."""

    assignment: Assignment
    sessions: Path
    """The folder of its session."""
    workspace: Path
    recorded: RecordFeature
    keep: Callable[[], Awaitable[None]]
    """Updates the record."""
    goes_on: bool
    """Whether the session already contains the task."""
    hear: Callable[[Event], None]
    submit: Callable[[ApprovalRequest], Awaitable[None]]
    """Sends an approval request to the front end."""
    budget: RemainingBudget
    """The budgets that it draws on."""
    former: tuple[str, ...] = ()
    """Workspaces on workers that had it before."""
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that say which parts of the worker's folder it may see."""


class Worker:
    def __init__(
        self,
        url: str,
        open_run: "Callable[[WorkerJob], HostedRun]",
        folder: Path,
        *,
        slots: int,
        total: int | None = None,
        version: str = "",
        alarm: TroubleNotifier | None = None,
    ) -> None:
        """`alarm` reports what this worker does and waits for to its operator."""
        self._url = url
        self._open_run = open_run
        self._folder = folder.absolute()
        self._slots = slots
        self._total = total
        self._version = version
        self._alarm = alarm or TroubleNotifier()
        self._say = self._alarm.say
        self._watch = FolderWatch(folder, self._alarm)
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._dropped: set[str] = set()
        self._hosted: dict[str, HostedRun] = {}
        self._heard: dict[str, int] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False
        self.name = ""

    async def run(self, stop: asyncio.Event, *, drain_s: float = 0.0) -> None:
        """Work until `stop` is set; runs that do not finish within `drain_s` are left to other workers."""
        upgrade = partial(upgrade_tables, self._say)
        async with (
            Database(self._url, name="retinue worker", upgrade=upgrade, alarm=self._alarm) as database,
            WaitingRuns(self._url, self._alarm) as waiting,
        ):
            # Slow steps come before the first heartbeat is expected.
            await prepare_engine(self._url)
            await self._watch.check()
            await prune_cache(self._folder / "workspaces", CACHE_BYTES)
            while not stop.is_set():
                await self._serve(database, waiting, stop, drain_s)

    async def _serve(self, database: Database, waiting: WaitingRuns, stop: asyncio.Event, drain_s: float) -> None:
        """Be a registered worker; returns when stopped, or when the other workers have declared this one dead."""
        self._is_leaving = False
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        member = Membership(database, waiting, self.name, self._slots, say=self._say)
        await member.join(self._version)
        # Running work is not abandoned for a problem that someone can fix.
        database.waits_for_rights = True
        taking = WorkerQueues(self._url, self.name, lambda run: self._perform(database, run), self._alarm)
        await database.await_room(ROOM)
        await taking.open(self._slots, self._total)
        self._say(f"worker {self.name} takes up to {self._slots} runs from {database.describe()}")
        async with asyncio.TaskGroup() as group:
            life = group.create_task(member.live())
            words = group.create_task(self._listen(database))
            watch = group.create_task(self._watch.run(self.name, taking))
            ended = group.create_task(stop.wait())
            await asyncio.wait((life, ended), return_when=asyncio.FIRST_COMPLETED)
            self._is_leaving = True
            watch.cancel()
            taking.pause()
            if stop.is_set() and drain_s > 0 and self._tasks:
                count = len(self._tasks)
                self._say(f"waiting up to {drain_s:g} s for {count} run{'' if count == 1 else 's'}")
                await self._drain(drain_s)
            for task in (life, words, ended):
                task.cancel()
        if not stop.is_set():
            self._say(
                f"other workers declared worker {self.name} dead, perhaps because it was suspended; it starts again"
            )
        await self._drop_all()
        await taking.close()
        await member.leave()

    async def _drain(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()

    async def _drop_all(self) -> None:
        """Cancel all runs here without reporting an outcome."""
        self._dropped.update(self._tasks)
        for task in self._tasks.values():
            task.cancel()
        await self._drain(DROP_S)

    async def _perform(self, database: Database, run: str) -> None:
        """Execute a run from its claim to its outcome."""
        # The run may have been taken before the folder was found unusable.
        await self._watch.usable.wait()
        if not self._is_leaving:
            claim = await Claim.take(database, run, self.name)
            if claim is None:
                return
            # The worker may have been stopped while claiming.
            if not self._is_leaving and await self._attend(database, claim):
                return
        # Returning would mark the workflow as done; a run that continues elsewhere must never return here.
        await asyncio.Event().wait()

    async def _attend(self, database: Database, claim: Claim) -> bool:
        """Execute a run; False if it was dropped or another worker owns it."""
        run, task = claim.assignment.id, asyncio.current_task()
        assert task is not None
        self._tasks[run] = task
        self._idle.clear()
        is_done = False
        try:
            await self._work(database, claim)
            is_done = True
        except* RunTakenOver:
            self._say(f"another worker has taken over run {run}")
        except* asyncio.CancelledError:
            if run not in self._dropped:
                raise
            task.uncancel()
        finally:
            del self._tasks[run]
            self._dropped.discard(run)
            if not self._tasks:
                self._idle.set()
        return is_done

    async def _work(self, database: Database, claim: Claim) -> None:
        assignment = claim.assignment
        budget = RemainingBudget(database, assignment.id, assignment.leases, claim)
        await budget.recover()
        batches = EventBatches(claim)
        folder = self._folder / "runs" / f"{assignment.id}-{claim.epoch}"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(batches.run())
                outcome = await self._contain(claim, self._work_in(database, claim, budget, batches, folder))
                batches.end()
            await batches.flush(outcome)
            if outcome.status is Status.FAILED and is_ours(outcome.error):
                self._say(f"run {assignment.id} failed on this worker: {escape_line(outcome.error, MOST_TOLD)}")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _contain(self, claim: Claim, work: Awaitable[Outcome]) -> Outcome:
        """Turn any failure into a failed run, so that the worker survives."""
        try:
            return await work
        except RunTakenOver:
            raise
        except RetinueError as error:
            reason, told = Reason.ERROR, str(error)
        except OSError as error:
            reason, told = Reason.ERROR, f"{quote(error.filename or 'a file', 200)}: {error.strerror or error}"
        except Exception as error:
            reason, told = Reason.CRASH, f"{type(error).__name__}: {error}"
        # The fix may be needed here or at the sender, so both are told where it went wrong.
        self._say(f"run {claim.assignment.id} cannot work on this worker: {escape_line(told, MOST_TOLD)}")
        return Outcome(Status.FAILED, reason, error=f"on worker {self.name}: {told}")

    async def _work_in(
        self, database: Database, claim: Claim, budget: RemainingBudget, batches: EventBatches, folder: Path
    ) -> Outcome:
        assignment = claim.assignment
        kept = await claim.read()
        if assignment.session != Path(assignment.session).name:
            raise RetinueError(f"the run names a session outside its folder: {quote(assignment.session)}")
        sessions = folder / "sessions"
        sessions.mkdir(mode=0o700, parents=True)
        mirror = SessionFolder(sessions)
        mirror.restore(piece for piece, _ in kept)
        goes_on = any(attempt == assignment.attempt and piece.kind == SESSION for piece, attempt in kept)
        # Changes of an earlier attempt are in the branch that this attempt was sent with.
        states = [piece for piece, attempt in kept if piece.kind == SNAPSHOT and attempt == assignment.attempt]
        async with self._open_workspace(database, assignment, states) as (workspace, snapshot, exposed):
            keeper = RunRecorder(claim.keep, mirror, WorkspaceSnapshots(snapshot, str(assignment.attempt), len(states)))
            # Stored with the first piece, so that no place is recorded in which nothing was said.
            keeper.note(RecordPart(PLACE, str(workspace), 0, b""))
            submit = partial(bring_case, database, assignment.id, claim.epoch)
            former = tuple(dict.fromkeys(piece.path for piece, _ in kept if piece.kind == PLACE))
            job = WorkerJob(
                assignment=assignment,
                sessions=sessions,
                workspace=workspace,
                recorded=RecordFeature(keeper),
                keep=keeper.keep,
                goes_on=goes_on,
                hear=batches.hear,
                submit=submit,
                budget=budget,
                former=former,
                extra_environment={WORKER_DIR: str(self._folder), EXPOSED: "\n".join(exposed)},
            )
            hosted = self._hosted[assignment.id] = self._open_run(job)
            try:
                await self._deliver(database, assignment.id)
                outcome = await hosted.work()
            finally:
                del self._hosted[assignment.id]
                self._heard.pop(assignment.id, None)
            await keeper.look()
            await keeper.keep()
        notes = dict.fromkeys((outcome.notes, *keeper.notes))
        return msgspec.structs.replace(outcome, notes="\n".join(filter(None, notes)))

    @asynccontextmanager
    async def _open_workspace(
        self, database: Database, assignment: Assignment, states: list[RecordPart]
    ) -> "AsyncIterator[tuple[Path, Snapshot, tuple[str, ...]]]":
        """Open the run's copy of its repository at the last recorded snapshot."""
        bundle_info = msgspec.convert(assignment.parcel, type=WorkspaceBundle)
        bundle = await read_bundle(database, assignment.digest)
        checkout = await Checkout.open(
            bundle_info, bundle, self._folder / "workspaces", [piece.data for piece in states]
        )

        async def snapshot() -> tuple[bytes | None, tuple[str, ...]]:
            state = await checkout.snapshot()
            return (None, ()) if state is None else (state.bundle, state.notes)

        try:
            yield checkout.path, snapshot, checkout.list_exposed()
        finally:
            await checkout.close()

    async def _listen(self, database: Database) -> None:
        """Deliver messages to runs soon after they are sent."""

        async def deliver(told: Sequence[str]) -> None:
            for run in list(self._hosted):
                if not told or run in told:
                    await self._deliver(database, run)

        await database.listen(CHANNEL, self._listen, deliver, WORD_S)

    async def _deliver(self, database: Database, run: str) -> None:
        rows = await database.fetch(
            "SELECT seq, kind, data::text FROM retinue.words WHERE id = %s AND seq > %s ORDER BY seq",
            run,
            self._heard.get(run, 0),
        )
        hosted = self._hosted.get(run)
        if hosted is None:
            return
        for seq, kind, data in rows:
            self._heard[run] = max(seq, self._heard.get(run, 0))
            try:
                word = RunMessage(kind, unpack_json(data, dict[str, Any]))
            except msgspec.DecodeError:
                # Stop one run rather than the worker.
                self._say(f"run {run} is stopped: it received a message that cannot be read")
                word = RunMessage("stop")
            hosted.take(word)
