"""Restores the runs of a session after its process died, from the entries of the main session.

Every state was recorded before anyone saw it, so the entries say for each run whether it was accepted, started or
ended, and the messages to its parent say whether that was reported. The Manager decides what to do. A run that is
continued waits until its parent works again, because it may use the parent's directory and model.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SessionError
from retinue.core.events import (
    Event,
    RunAsked,
    RunContinued,
    RunFinished,
    RunForgotten,
    RunPaused,
    RunQueued,
    RunSteered,
)
from retinue.core.fold import fold, fold_record
from retinue.core.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage, join_text
from retinue.core.pattern import late_pattern
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.clock import make_uuid
from retinue.engine.journal import PAUSE
from retinue.engine.notify import CUSTOM_TYPE, list_told
from retinue.engine.request import RunRequest, read_request
from retinue.engine.retries import EarlierUsage
from retinue.engine.session_path import find_file, find_tree
from retinue.sessions.log import Session
from retinue.sessions.tree import find_main

_ID = late_pattern(r"[A-Za-z0-9_-]{1,64}")


class StoredRuns(Struct):
    """The runs of a session as its last process left them, in the order they were accepted."""

    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, RunRequest] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    """Messages to runs that they may not have received: all of them until `drop_used` was called."""
    ends: dict[str, int] = field(default_factory=dict)
    """How often each run has ended, counting resumed attempts."""
    past: dict[str, Run] = field(default_factory=dict)
    """Runs that were forgotten, for views."""
    asked: int = 0
    """How many questions its runs have asked."""
    pauses: dict[str, RunPaused] = field(default_factory=dict)
    """What each run waited for: the end of a usage limit."""
    damaged: int = 0

    def adopt(self, root_id: str) -> None:
        """Make the new main agent the parent of the top-level runs: its id differs in each process."""
        for kept in (self.runs, self.past):
            for run_id, run in kept.items():
                if run.depth <= 1:
                    kept[run_id] = msgspec.structs.replace(run, parent_id=root_id)

    def drop_used(self, read_words: Callable[[Run], Iterable[str]]) -> None:
        """Drop messages that the runs have already read; `read_words` returns the user messages in a run's session."""
        for run_id, said in list(self.said.items()):
            used = Counter(read_words(self.runs[run_id]))
            used[self.requests[run_id].task] -= 1  # the task itself is not a steering message with the same text
            left = []
            for text in said:
                if used[text] > 0:
                    used[text] -= 1
                else:
                    left.append(text)
            self.said[run_id] = left

    def find_untold(self, main: Session, root_id: str, clock: Clock) -> list[Run]:
        """Return finished runs whose parent has neither read the result nor been notified, nor is asked by them."""
        ended = [run for run in self.runs.values() if run.status.is_final and run.is_background and not run.is_read]
        # Remote children are reported by the machine that runs their parent; a run that asks continues with the answer.
        ended = [run for run in ended if not run.is_guest and not run.questions]
        told = {root_id: set(_list_told(main))}
        for parent_id in {run.parent_id for run in ended} - {root_id}:
            request = self.requests.get(parent_id)
            told[parent_id] = set() if request is None else _read_told(parent_id, request, main, clock)
        return [run for run in ended if (run.id, run.attempt) not in told[run.parent_id]]


def interrupt(run: Run) -> Outcome:
    """Return the outcome of a run whose process died."""
    error = "the process that worked on it ended"
    return Outcome(Status.INTERRUPTED, Reason.CRASH, error=error)


def _read_told(parent_id: str, request: RunRequest, main: Session, clock: Clock) -> set[tuple[str, int]]:
    """Return the ends of runs, as (run id, attempt), that were reported in the parent's session."""
    path = find_file(main.tree, parent_id, request)
    if path is None or not path.exists():
        return set()
    try:
        session = Session.open(path, clock=clock, new_id=make_uuid, tree=find_tree(main.tree, path))
    except SessionError:
        return set()
    told = set(_list_told(session))
    session.close()
    return told


def _list_told(session: Session) -> Iterator[tuple[str, int]]:
    for details in session.custom_details(CUSTOM_TYPE):
        yield from list_told(details)


def read_remains(entries: Iterable[Any]) -> StoredRuns:
    """Rebuild the state of the runs from their entries in a main session."""
    remains = StoredRuns()
    for data in entries:
        try:
            event: Event = msgspec.convert(data, type=Event)
            _apply(remains, event)
        except (msgspec.ValidationError, KeyError):
            remains.damaged += 1
    return remains


def _apply(remains: StoredRuns, event: Event) -> None:
    if isinstance(event, RunQueued):
        # Ids are used in file names.
        if event.run.id != event.run_id or not _ID.fullmatch(event.run_id):
            raise KeyError(event.run_id)
        known = remains.runs.get(event.run_id)
        if known is None:
            remains.runs[event.run_id] = event.run
        else:
            fold(known, event)
            remains.runs[event.run_id] = remains.runs.pop(event.run_id)  # queued again behind those accepted before
        remains.requests[event.run_id] = read_request(event.request)
    elif isinstance(event, RunForgotten):
        remains.past[event.run_id] = remains.runs.pop(event.run_id)
        del remains.requests[event.run_id]
        remains.said.pop(event.run_id, None)
    else:
        remains.asked += isinstance(event, RunAsked)
        if isinstance(event, RunSteered):
            remains.said.setdefault(event.run_id, []).append(event.text)
        elif isinstance(event, RunFinished):
            # A run that ended normally has read its messages, or finished without them.
            if event.outcome.reason is not Reason.CRASH:
                remains.said.pop(event.run_id, None)
            remains.ends[event.run_id] = remains.ends.get(event.run_id, 0) + 1
        fold_record(remains.runs[event.run_id], event)
        if isinstance(event, RunPaused):
            remains.pauses[event.run_id] = event
        elif isinstance(event, RunContinued | RunFinished):
            remains.pauses.pop(event.run_id, None)


def find_main_pause(session: Session) -> RunPaused | None:
    """Return the usage limit that the main agent waited for when its last process ended; None if it did not wait."""
    told = list(session.customs(PAUSE))
    try:
        event = msgspec.convert(told[-1], RunPaused | RunContinued) if told else None
    except msgspec.ValidationError:
        return None
    return event if isinstance(event, RunPaused) else None


def read_past(session: Session, since_ms: int) -> EarlierUsage | None:
    """Return what a run has used since it began; None if it has not read its task."""
    messages = [entry.message for entry in session.entries()]
    if not any(isinstance(message, UserMessage) and message.timestamp >= since_ms for message in messages):
        return None
    replies = [m for m in messages if isinstance(m, AssistantMessage) and m.timestamp >= since_ms]
    usage = sum((reply.usage for reply in replies), Usage())
    turns = sum(reply.stop_reason not in ("error", "aborted", "pending") for reply in replies)
    return EarlierUsage(usage, turns, sum(len(reply.calls) for reply in replies))


def has_left_copies(remains: StoredRuns) -> bool:
    """Return whether a run was interrupted that works in a copy of the repository."""
    cut_off = (run.id for run in remains.runs.values() if run.status in (Status.RUNNING, Status.WAITING))
    return any(remains.requests[run_id].isolation is not None for run_id in cut_off)


class SavedCopies(Protocol):
    """Finds the branches to which copies of repositories were saved."""

    async def find_branch(self, run_id: str, cwd: Path) -> str:
        """Return the branch of a run; empty if there is none."""
        ...


async def find_branches(remains: StoredRuns, returning: Iterable[str], copies: SavedCopies, cwd: Path) -> None:
    """Set the branch of runs that are continued: another process may have saved and removed their copies."""
    for run_id in returning:
        run, request = remains.runs[run_id], remains.requests[run_id]
        if request.isolation == "worktree" and not run.branch:
            run.branch = await copies.find_branch(run_id, _find_cwd(remains, run, cwd))


def _find_cwd(remains: StoredRuns, run: Run | None, cwd: Path) -> Path:
    """Return the directory of a run; copies of it have the same branches."""
    while run is not None:
        if asked := remains.requests[run.id].cwd:
            return Path(asked)
        run = remains.runs.get(run.parent_id)
    return cwd


class SavedWork(Protocol):
    """What was saved from a copy that a dead process left."""

    @property
    def branch(self) -> str:
        """The branch with its changes; empty if there is none."""
        ...

    @property
    def notes(self) -> str:
        """Text to append to the run's report."""
        ...


class CrashOutcomes:
    """Determines the outcome of interrupted runs of one main session."""

    def __init__(self, main: Session, clock: Clock, remains: StoredRuns, copies: Mapping[str, SavedWork]) -> None:
        """`copies` is what was saved from copies that dead processes left, by run id."""
        self._main = main
        self._requests = remains.requests
        self._clock = clock
        self._copies = copies

    def judge(self, run: Run) -> Outcome:
        outcome = replace(self._count(run, interrupt(run)), is_unbegun=self._is_unbegun(run))
        if (left := self._copies.get(run.id)) is None:
            return outcome
        return replace(outcome, branch=left.branch, notes=left.notes)

    def read_words(self, run: Run) -> list[str]:
        session = self._open(run)
        if session is None:
            return []
        entries = session.entries()
        session.close()
        return [join_text(entry.message.content) for entry in entries if isinstance(entry.message, UserMessage)]

    def _count(self, run: Run, outcome: Outcome) -> Outcome:
        """Add the text, usage and counts that the session holds for this attempt."""
        session = self._open(run)
        if session is None:
            return outcome
        said = [m.text for m in session.context().messages if isinstance(m, AssistantMessage) and m.text.strip()]
        messages = [entry.message for entry in session.entries()]
        session.close()
        replies = [m for m in messages if isinstance(m, AssistantMessage) and m.timestamp >= run.started_ms]
        results = [m for m in messages if isinstance(m, ToolResultMessage) and m.timestamp >= run.started_ms]
        return replace(
            outcome,
            text=said[-1] if said else "",
            usage=sum((reply.usage for reply in replies), Usage()),
            turns=len(replies),
            tool_calls=len(results),
        )

    def _is_unbegun(self, run: Run) -> bool:
        """Return whether the run did nothing: a child's session file is created with its first reply."""
        path = self._find_file(run)
        if path is None or path.exists():
            return False
        return find_tree(self._main.tree, path) is not None or find_main(path) != path

    def _find_file(self, run: Run) -> Path | None:
        return find_file(self._main.tree, run.id, self._requests[run.id])

    def _open(self, run: Run) -> Session | None:
        path = self._find_file(run)
        if path is None or not path.exists():
            return None
        try:
            return Session.open(path, clock=self._clock, new_id=make_uuid, tree=find_tree(self._main.tree, path))
        except SessionError:
            return None


class ResumableRuns:
    """Runs to be continued that do not work yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Run]] = {}
        """For each such run: its children that wait for it."""

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._waiting

    def add(self, run: Run) -> bool:
        """Add a run, after its parent; return whether it may start now."""
        self._waiting[run.id] = []
        above = self._waiting.get(run.parent_id)
        if above is not None:
            above.append(run)
        return above is None

    def settle(self, run_id: str) -> Sequence[Run]:
        """Remove a run that works again or cannot be continued; return the runs that waited for it."""
        return self._waiting.pop(run_id, ())
