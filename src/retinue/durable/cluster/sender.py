"""A front end's connection to the cluster: sends runs, receives their events, sends messages. Opened on first use.

One connection listens for all runs of a front end; missed notifications are found by polling.
"""

import asyncio
import copy
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from retinue.core.events import Event
from retinue.core.run import Outcome
from retinue.durable.cluster.approval import ApprovalDecision, ApprovalRequest, RemoteVerdict
from retinue.durable.cluster.assignment import CHANNEL, Assignment, SenderPlaces, WordKind, unpack_assignment
from retinue.durable.cluster.database import Database, pack_json, unpack_json
from retinue.durable.cluster.dbos_queues import WaitingRuns, prepare_engine
from retinue.durable.cluster.record import submit
from retinue.durable.cluster.shared_budget import RemainingBudget, open_leases
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, pack, read_bundle
from retinue.durable.recorded_run import SNAPSHOT
from retinue.durable.session_files import SESSION
from retinue.durable.trouble import MARK, TroubleNotifier
from retinue.engine.budget import Lease

LOOK_S = 1.0
ALONE_S = 0.2
PACKED_S = 2.0
"""Runs that start within this time share one packed workspace."""
_PAST = """
WITH sent (run, kind, path, data) AS (VALUES (%s, %s, %s, %s::bytea))
INSERT INTO retinue.records (run, attempt, epoch, kind, path, place, data)
SELECT run, 0, 0, kind, path, 0, data FROM sent WHERE NOT EXISTS (
    SELECT 1 FROM retinue.records r WHERE r.run = sent.run AND r.kind = sent.kind AND r.path = sent.path)
ON CONFLICT DO NOTHING
"""
"""Stored without an attempt, so that the run is not taken for one that is being resumed."""
_decoder = msgspec.json.Decoder(Event)


class NewEvents(msgspec.Struct, frozen=True):
    """New events of a run."""

    events: list[Event]
    seq: int
    """Number of the last event."""
    worker: str = ""
    outcome: Outcome | None = None


class Cluster:
    """The cluster for the runs of one main agent."""

    def __init__(
        self,
        url: str,
        *,
        use_remote: bool = True,
        alarm: TroubleNotifier | None = None,
        find_hidden: Callable[[Path], Sequence[str]] = lambda cwd: (),
    ) -> None:
        """`use_remote`: workers fetch what a repository's remote has; else everything is sent.

        `alarm` reports what runs wait for if it is neither a worker nor the run itself. `find_hidden` returns what
        agents must not read, which is not sent.
        """
        self._find_hidden = find_hidden
        self._alarm = alarm or TroubleNotifier()
        self._use_remote = use_remote
        self.channel = f"retinue_face_{secrets.token_hex(8)}"
        self._before_send: Callable[[], Awaitable[None]] | None = None
        self._above: tuple[str, ...] = ()
        self.home: SenderPlaces | None = None
        """Original places of the run that sends others from a worker; None at the first front end."""
        self._is_shared = False
        self._database = Database(url, name="retinue", alarm=self._alarm)
        self._waiting = WaitingRuns(url, self._alarm)
        self._url = url
        self._opened = asyncio.Event()
        self._opening = asyncio.Lock()
        self._listening = asyncio.Lock()
        self._news: dict[str, asyncio.Event] = {}
        self._brought: dict[str, asyncio.Event] = {}
        self._leased: set[str] = set()
        self._packed: dict[Path, tuple[float, WorkspaceBundle, bytes]] = {}
        self._recalled: dict[str, bytes] = {}
        """Sessions that are not stored, for runs that this process resumes."""

    def share(
        self, before_send: Callable[[], Awaitable[None]], above: tuple[str, ...], home: SenderPlaces
    ) -> "Cluster":
        """Return a view with the same connections for one of several runs on a worker.

        `before_send` updates its own record before it sends others; `above` are its leases; `home` is where it belongs.
        """
        shared = copy.copy(self)
        shared._before_send, shared._above, shared._is_shared = before_send, above, True
        shared.home = home
        shared._recalled = {}
        return shared

    async def listen(self) -> None:
        """Wake the followers of runs with new events. Never returns; the owner of this object runs it.

        Of several objects that share the connections one listens for all; when it ends, the next takes over.
        """
        # Opened by the sender of the first run, who also receives the error if that fails.
        await self._opened.wait()
        async with self._listening:
            try:
                await self._database.listen(self.channel, self.channel, self._wake, LOOK_S)
            finally:
                self._alarm.clear(self.channel)
                await self._wake(())

    async def _wake(self, told: Sequence[str]) -> None:
        """Wake the followers of these runs, or all; some of the notifications are notices of workers."""
        for run in told or {*self._news, *self._brought}:
            if run.startswith(MARK):
                self._alarm.hear(run)
            for flags in (self._news, self._brought):
                if (flag := flags.get(run)) is not None:
                    flag.set()

    async def _await(self, flag: asyncio.Event) -> None:
        """Wait to be woken; poll while nobody listens, for example while a closing front end stops its runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._listening.locked() else ALONE_S):
                await flag.wait()

    async def close(self) -> None:
        """Close the connections; sent runs continue. Shared connections stay open for the others."""
        if self._is_shared:
            return
        await self._waiting.__aexit__(None, None, None)
        await self._database.__aexit__(None, None, None)

    async def send(
        self, assignment: Assignment, lease: Lease, cwd: Path, branch: str = "", past: bytes = b""
    ) -> Assignment:
        """Queue a run for any free worker; sending it twice has no effect.

        `branch` has the changes of an earlier attempt; `past` is the session to continue, if the database does not have
        it. Returns the run as it was sent, possibly earlier.
        """
        await self._open()
        known = await self._database.fetch("SELECT assignment::text FROM retinue.runs WHERE id = %s", assignment.id)
        if known:
            assignment = unpack_assignment(known[0][0])
        else:
            if self._before_send is not None:
                await self._before_send()
            bundle_info, bundle = await self._pack(cwd, branch)
            digest = bundle_info.digest
            if digest:
                await self._database.fetch(
                    "INSERT INTO retinue.parcels (digest, data) VALUES (%s, %s)"
                    " ON CONFLICT (digest) DO UPDATE SET created = now()",  # used again, so not pruned now
                    digest,
                    bundle,
                )
            if past:
                await self._database.fetch(_PAST, assignment.run_id, SESSION, assignment.session, past)
            async with lease.root.turn:  # prevents local reservations that the database does not count yet
                own = await open_leases(self._database, lease)
                self._leased.update(own)
            leases = (*own, *self._above)
            assignment = msgspec.structs.replace(
                assignment, parcel=msgspec.to_builtins(bundle_info), digest=digest, leases=leases, face=self.channel
            )
        self._news[assignment.id] = asyncio.Event()
        await submit(self._database, msgspec.structs.replace(assignment, face=self.channel))
        await self._waiting.add(assignment)
        return assignment

    def find_budget(self, keys: Sequence[str], run_id: str) -> RemainingBudget | None:
        """Return the budget that local runs share with sent ones; None if no sent run draws on these leases."""
        shared = self.find_shared(keys)
        return RemainingBudget(self._database, run_id, shared) if shared else None

    def find_shared(self, keys: Sequence[str]) -> list[str]:
        """Return those of the leases that sent runs draw on."""
        return [key for key in keys if key in self._leased]

    async def follow(self, run: str, seq: int) -> NewEvents:
        """Wait for events of a run after `seq`."""
        flag = self._news.setdefault(run, asyncio.Event())
        while True:
            flag.clear()
            # One query, so that the outcome is never seen without the events written with it.
            rows = await self._database.fetch(
                "SELECT r.outcome::text, r.owner, e.seq, e.data FROM retinue.runs r"
                " LEFT JOIN retinue.events e ON e.id = r.id AND e.seq > %s WHERE r.id = %s ORDER BY e.seq",
                seq,
                run,
            )
            told = [(number, bytes(data)) for _, _, number, data in rows if number is not None]
            ended = rows[0][0] if rows else None
            if told or ended is not None:
                events = [_decoder.decode(line) for _, data in told for line in data.splitlines() if line]
                outcome = None if ended is None else unpack_json(ended, Outcome)
                return NewEvents(events, told[-1][0] if told else seq, rows[0][1], outcome)
            await self._await(flag)

    async def say(self, run: str, kind: WordKind, data: dict[str, Any]) -> None:
        """Send a message to a run, wherever it works."""
        await self._say(run, uuid4().hex, kind, data)

    async def _say(self, run: str, key: str, kind: WordKind, data: object) -> None:
        await self._database.fetch(
            "WITH said AS (INSERT INTO retinue.words (id, key, kind, data) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING) SELECT pg_notify(%s, %s)",
            run,
            key,
            kind,
            pack_json(data),
            CHANNEL,
            run,
        )

    async def read_cases(self, run: str) -> list[ApprovalRequest]:
        """Return the undecided approval requests and notices of a run, without those for an earlier worker."""
        rows = await self._database.fetch(
            "SELECT c.data FROM retinue.cases c JOIN retinue.runs r ON r.id = c.id"
            " WHERE c.id = %s AND (NOT c.waits OR c.epoch = r.epoch)"
            " AND NOT EXISTS (SELECT 1 FROM retinue.words w WHERE w.key = c.key) ORDER BY c.seq",
            run,
        )
        return [msgspec.json.decode(bytes(data), type=ApprovalRequest) for (data,) in rows]

    async def await_cases(self, run: str) -> None:
        """Return when there may be new ones."""
        flag = self._brought.setdefault(run, asyncio.Event())
        await self._await(flag)
        flag.clear()

    async def settle(self, run: str, case: ApprovalRequest, ruling: ApprovalDecision) -> None:
        """Send the decision about a request to the run; only the first one for a request counts."""
        if not case.waits:
            await self._database.fetch("DELETE FROM retinue.cases WHERE key = %s", case.key)
            return
        call_id = "" if case.call is None else case.call.id
        verdict = RemoteVerdict(key=case.key, ruling=ruling, digest=case.digest, run_id=case.run_id, call_id=call_id)
        await self._say(run, case.key, "ruling", verdict)

    async def forget_cases(self, run: str) -> None:
        self._brought.pop(run, None)
        await self._database.fetch("DELETE FROM retinue.cases WHERE id = %s", run)

    async def withdraw(self, run: str) -> bool:
        """Withdraw a run that no worker has begun; False if one has."""
        outcome = '{"status": "stopped", "reason": "user"}'
        rows = await self._database.fetch(
            "UPDATE retinue.runs SET finished = now(), outcome = %s WHERE id = %s AND epoch = 0 AND finished IS NULL"
            " RETURNING 1",
            outcome,
            run,
        )
        if rows:
            await self._waiting.cancel(run)
        return bool(rows)

    async def read_files(self, run_id: str, kind: str) -> list[tuple[str, int, bytes]]:
        """Return what is stored of a run: parts of its session, or snapshots of its workspace."""
        rows = await self._database.fetch(
            "SELECT path, place, data FROM retinue.records WHERE run = %s AND kind = %s ORDER BY seq", run_id, kind
        )
        return [(path, place, bytes(data)) for path, place, data in rows]

    async def read_states(self, assignment: Assignment) -> list[bytes]:
        """Return the snapshots of a run's workspace in this attempt, in order."""
        files = await self.read_files(assignment.run_id, SNAPSHOT)
        return [data for attempt, _, data in files if attempt == str(assignment.attempt)]

    async def read_bundle(self, digest: str) -> bytes | None:
        return await read_bundle(self._database, digest)

    async def mark_delivered(self, sent: Assignment, *, keeps_session: bool, has_changes: bool) -> None:
        """Record that this front end has the outcome and perhaps the changes; take a session that is not stored."""
        if not keeps_session:
            files = await self.read_files(sent.run_id, SESSION)
            self._recalled[sent.run_id] = b"".join(data for path, _, data in files if path == sent.session)
            # This also deletes the sessions of its children, stored with it.
            await self._database.fetch("DELETE FROM retinue.records WHERE run = %s AND kind = %s", sent.run_id, SESSION)
        await self._database.fetch(
            "UPDATE retinue.runs SET heard = now(), home = CASE WHEN %s THEN now() ELSE home END WHERE id = %s",
            has_changes,
            sent.id,
        )

    def recall(self, run_id: str) -> bytes:
        """Return the session of a run that stores none, if this process has it."""
        return self._recalled.get(run_id, b"")

    async def forget_events(self, run: str) -> None:
        self._news.pop(run, None)
        await self._database.fetch("DELETE FROM retinue.events WHERE id = %s", run)

    async def _open(self) -> None:
        async with self._opening:
            if self._opened.is_set():
                return
            await self._database.__aenter__()
            rows = await self._database.fetch("SELECT to_regclass('dbos.workflow_status') IS NOT NULL")
            if not rows[0][0]:
                await prepare_engine(self._url)
            self._opened.set()

    async def _pack(self, cwd: Path, branch: str) -> tuple[WorkspaceBundle, bytes]:
        if branch:
            return await pack(cwd, branch=branch, use_remote=self._use_remote)
        async with self._opening:
            loop = asyncio.get_running_loop()
            at_s, bundle_info, bundle = self._packed.get(cwd, (0.0, None, b""))
            if bundle_info is None or loop.time() - at_s > PACKED_S:
                bundle_info, bundle = await pack(cwd, use_remote=self._use_remote, hidden=self._find_hidden(cwd))
                self._packed[cwd] = (loop.time(), bundle_info, bundle)
            return bundle_info, bundle
