"""Runs started by a run on another machine: listed and shown here, executed and reported there.

What the other machine sends is untrusted data. It can only change runs below the run it comes from, never names a path
on this machine, and grants no rights. MUST NOT know the transport.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import structs

from retinue.core.clock import Clock
from retinue.core.events import (
    Compacted,
    Event,
    MessageFinished,
    RunContinued,
    RunFinished,
    RunForgotten,
    RunPaused,
    RunPlaced,
    RunProgressed,
    RunQueued,
    RunRead,
    RunStarted,
    Warned,
)
from retinue.core.fold import fold
from retinue.core.messages import Message
from retinue.core.pattern import late_pattern
from retinue.core.run import BRANCH_PREFIX, Grant, Outcome, Reason, Run, Status
from retinue.engine.bus import Bus
from retinue.engine.limits import ASKED
from retinue.engine.request import RunRequest, read_request, store_request
from retinue.engine.run_table import RunTable
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_file

MOST = 1000
"""Maximum number of remote children of one run; further ones are ignored."""
MAX_NAME, MAX_LINE, MAX_TEXT = 200, 2_000, 200_000
"""Maximum characters of a name, a line and a text."""
_MAX_PAUSE_MS = 400 * 24 * 3_600_000
_ID = late_pattern(r"[A-Za-z0-9_-]{1,64}")
_BRANCH = late_pattern(rf"{BRANCH_PREFIX}[A-Za-z0-9_-]{{1,90}}")
_KEPT = ("model", "thinking", "isolated", "isolation", "allow_write", "join", "is_background", *ASKED)
"""Fields of a request that mean the same on this machine: none names a file or a folder."""


@runtime_checkable
class RemoteHost(Protocol):
    """The local side of a run on another machine; it forwards messages there."""

    def restrict(self, tools: Sequence[str], *, readonly: bool) -> None:
        """Revoke tools from the remote run and all runs it started."""
        ...

    def demand_judgement(self) -> None:
        """Tell the remote run that this machine may now have more of its calls to judge than before."""
        ...

    def pass_on(self, run_id: str, verb: str, data: Mapping[str, Any]) -> None:
        """Send a command about, or to, a run that the remote run started."""
        ...


class RemoteChildren:
    """Tracks the remote children of all runs of one main agent."""

    def __init__(
        self,
        runs: RunTable,
        root: LiveRun,
        live: Mapping[str, LiveRun],
        *,
        place: Callable[[RunRequest, str, str], str],
        ring: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`place` returns a session file other than the default one; `ring` wakes callers that wait for a run's end."""
        self._place = place
        self._runs = runs
        self._root = root
        self._live = live
        self._ring = ring
        self._clock = clock
        self._talks: dict[str, RemoteConversation] = {}
        self._files: dict[str, dict[str, Path]] = {}
        """By host run: session files of its remote children, including those no longer listed."""

    def hear(self, host_id: str, event: Event) -> None:
        """Apply an event that a remote run reports about a run below it; duplicate and forbidden ones are ignored."""
        if isinstance(event, RunQueued):
            self._accept(host_id, event)
            return
        run = self._runs.find(event.run_id)
        if run is None or not self._is_below(run, host_id):
            return
        match event:
            case RunStarted() if run.status is Status.QUEUED:
                self._talks[run.id] = RemoteConversation()
                grant = narrow_grant(event.grant, run.grant)
                self._runs.tell(RunStarted(run_id=run.id, at_ms=self._bound_ms(event.at_ms), grant=grant))
            case RunFinished() if not run.status.is_final:
                self._finish(run, self._receive(run, event.outcome), self._bound_ms(event.at_ms))
            case RunRead() if run.status.is_final and not run.is_read:
                self._runs.tell(RunRead(run_id=run.id))
            case RunForgotten():
                self._forget(run)
            case RunPlaced() if not run.status.is_final and run.worker != event.worker[:MAX_NAME]:
                self._show(run, RunPlaced(run_id=run.id, worker=event.worker[:MAX_NAME]))
            case RunPaused() if run.status is Status.RUNNING:
                # Its gate is not one of this process.
                self._runs.tell(structs.replace(self.bound(event), gate=""))
            case RunContinued() if run.status is Status.WAITING:
                self._runs.tell(RunContinued(run_id=run.id))
            case Compacted() | Warned():
                self._root.bus.publish(_shorten(event))
            case RunProgressed() | MessageFinished() if not run.status.is_final:
                self._follow(run, event)

    def settle(self, host_id: str, outcome: Outcome | None = None) -> None:
        """End all remote children of a host run that has ended."""
        was_stopped = outcome is not None and outcome.status is Status.STOPPED
        status = Status.STOPPED if was_stopped else Status.INTERRUPTED
        for run in self._list_below(host_id):
            if not run.status.is_final:
                end = Outcome(status, Reason.PARENT, error="the run that started it ended", usage=run.usage)
                self._finish(run, end, self._clock.now_ms())
            self._talks.pop(run.id, None)
        self._files.pop(host_id, None)

    def find_host(self, run_id: str) -> str:
        """Return the local run through which a remote child reports; empty if there is none."""
        run = self._runs.find(run_id)
        while run is not None and run.is_guest:
            run = self._runs.find(run.parent_id)
        return "" if run is None else run.id

    def speak(self, run_id: str, verb: str, data: Mapping[str, Any]) -> bool:
        """Send a command to a remote child through its host run; False if the host is not connected."""
        host = self._live.get(self.find_host(run_id))
        if not isinstance(host, RemoteHost):
            return False
        host.pass_on(run_id, verb, {"attempt": self._runs[run_id].attempt, **data})
        return True

    def can_speak(self, run_id: str) -> bool:
        return isinstance(self._live.get(self.find_host(run_id)), RemoteHost)

    def find_file(self, host_id: str, run_id: str) -> Path | None:
        """Return the local session file of a remote child; None if it has none or is not below this host."""
        run = self._runs.find(run_id)
        if run is None or not self._is_below(run, host_id):
            return self._files.get(host_id, {}).get(run_id) if run is None else None
        return find_file(self._root.session.tree, run_id, self._runs.find_request(run_id))

    def find_bus(self, run_id: str) -> Bus | None:
        talk = self._talks.get(run_id)
        return None if talk is None else talk.bus

    def list_messages(self, run_id: str) -> list[Message]:
        talk = self._talks.get(run_id)
        return [] if talk is None else list(talk.messages)

    def bound(self, event: RunPaused) -> RunPaused:
        """Return what the other machine tells of a usage limit, with a text and a time that can be shown here."""
        until_ms = max(0, min(event.until_ms, self._clock.now_ms() + _MAX_PAUSE_MS))
        return structs.replace(event, until_ms=until_ms, provider=event.provider[:MAX_NAME])

    def _accept(self, host_id: str, event: RunQueued) -> None:
        told, known, parent = event.run, self._runs.find(event.run_id), self._runs.find(event.run.parent_id)
        if told.id != event.run_id or not _ID.fullmatch(told.id) or told.id == self._root.setup.run_id:
            return
        if parent is None or not (parent.id == host_id or self._is_below(parent, host_id)):
            return
        try:
            request = to_request(event.request)
        except (msgspec.ValidationError, TypeError, AttributeError):
            return
        queued_ms = self._bound_ms(told.queued_ms)
        if known is None:
            request = structs.replace(request, session_file=self._place(request, parent.id, told.id))
            file = find_file(self._root.session.tree, told.id, request)
            # An existing file belongs to another run that is no longer listed.
            if len(self._list_below(host_id)) < MOST and not (file is not None and file.exists()):
                self._add(host_id, to_guest(told, parent, request, queued_ms), request, file)
        elif self._is_below(known, host_id) and known.status.is_final and told.attempt > known.attempt:
            request = structs.replace(request, session_file=self._runs.find_request(known.id).session_file)
            self._runs.add(structs.replace(known, attempt=told.attempt, queued_ms=queued_ms), request)

    def _receive(self, run: Run, outcome: Outcome) -> Outcome:
        """Return the outcome without paths of the other machine."""
        file = self.find_file(self.find_host(run.id), run.id)
        return structs.replace(
            outcome,
            text=_cut(outcome.text, MAX_TEXT),
            error=_cut(outcome.error, MAX_LINE),
            notes=_cut(outcome.notes, MAX_LINE),
            sandbox=_cut(outcome.sandbox, MAX_NAME),
            # The branch arrives with the work of the host run.
            branch=outcome.branch if _BRANCH.fullmatch(outcome.branch) else "",
            session_file="" if file is None else str(file),
        )

    def _finish(self, run: Run, outcome: Outcome, at_ms: int) -> None:
        self._runs.tell(RunFinished(run_id=run.id, outcome=outcome, at_ms=at_ms))
        self._ring(run.id)

    def _forget(self, run: Run) -> None:
        if self._runs.forget(run.id):
            self._talks.pop(run.id, None)

    def _add(self, host_id: str, run: Run, request: RunRequest, file: Path | None) -> None:
        if file is not None:
            self._files.setdefault(host_id, {})[run.id] = file
        self._runs.add(run, request)

    def _follow(self, run: Run, event: RunProgressed | MessageFinished) -> None:
        talk = self._talks.setdefault(run.id, RemoteConversation())
        if isinstance(event, RunProgressed):
            event = structs.replace(event, activity=event.activity[:MAX_NAME])
            fold(run, event)
            talk.bus.publish(event)
        else:
            talk.take(event)

    def _show(self, run: Run, event: RunPlaced) -> None:
        if run.status is Status.RUNNING:
            self._talks.setdefault(run.id, RemoteConversation())  # after a restart here its start is not reported again
        fold(run, event)
        self._root.bus.publish(event)

    def _is_below(self, run: Run, host_id: str) -> bool:
        return run.is_guest and self.find_host(run.id) == host_id

    def _list_below(self, run_id: str) -> list[Run]:
        """Return all remote children below a run, the deepest first."""
        found: list[Run] = []
        for child in self._runs.list_children(run_id):
            if child.is_guest:
                found += [*self._list_below(child.id), child]
        return found

    def _bound_ms(self, told_ms: int) -> int:
        """Limit a time of another machine's clock: never in the future."""
        return max(0, min(told_ms, self._clock.now_ms()))


class RemoteConversation:
    """Messages and events received from one remote child."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.messages: list[Message] = []
        self._known: set[bytes] = set()

    def take(self, event: MessageFinished) -> None:
        """Add a message, ignoring duplicates: a worker that continues the host run sends all messages again."""
        key = msgspec.json.encode(event.message)
        if key not in self._known:
            self._known.add(key)
            self.messages.append(event.message)
            self.bus.publish(event)


def to_guest(told: Run, parent: Run, request: RunRequest, queued_ms: int) -> Run:
    """Build the local record of a remote child from what it reports and its place in the local tree."""
    return Run(
        id=told.id,
        parent_id=parent.id,
        depth=parent.depth + 1,
        extra_depth=parent.extra_depth,
        agent=request.agent,
        description=request.description,
        surface=request.surface,
        attempt=max(1, told.attempt),
        queued_ms=queued_ms,
        call_id=_cut(told.call_id, MAX_NAME),
        join=told.join,
        is_background=told.is_background,
        invocation=request.invocation,
        grant=narrow_grant(told.grant, parent.grant),
        is_guest=True,
    )


def to_request(told: Mapping[str, Any]) -> RunRequest:
    """Rebuild the request of a remote child with only the fields that are valid here. Raises ValidationError."""
    request = read_request(told)
    stored = store_request(request)
    shown = {_cut(name, MAX_NAME): _cut(value, MAX_LINE) for name, value in list(request.invocation.items())[:20]}
    return read_request(
        {
            "agent": _cut(request.agent, MAX_NAME),
            "task": _cut(request.task, MAX_TEXT),
            "description": _cut(request.description, MAX_LINE),
            "surface": _cut(request.surface, MAX_NAME),
            "invocation": {name: value for name, value in shown.items() if isinstance(value, str | int | float)},
            # A custom session path is valid on the other machine only.
            "keeps_session": request.keeps_session and not request.session_file,
            **{name: stored[name] for name in _KEPT},
        }
    )


def narrow_grant(told: Grant | None, most: Grant | None) -> Grant | None:
    """Return what a remote child may use, never more than its parent."""
    if told is None or most is None:
        return told if most is None else most
    tools = tuple(name for name in told.tools if name in most.tools)
    return Grant(tools=tools, readonly=told.readonly or most.readonly)


def _shorten(event: Compacted | Warned) -> Event:
    if isinstance(event, Warned):
        return structs.replace(event, text=_cut(event.text, MAX_LINE))
    tokens = (event.result or {}).get("tokensBefore")
    result = None if event.result is None else {"tokensBefore": tokens if isinstance(tokens, int) else 0}
    return structs.replace(event, result=result, error=_cut(event.error, MAX_LINE))


def _cut(value: Any, most: int) -> Any:
    return f"{value[:most]}…" if isinstance(value, str) and len(value) > most else value
