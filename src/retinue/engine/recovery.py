"""What became of a crew when its process died: read from the main session, nothing guessed.

Every state was written before anyone saw it, so the entries tell for each run whether it had been accepted, had begun
or had ended, and the messages to its parent whether that has been told. Deciding what to do is the Manager's. A run
that is continued waits until its parent is at work again, whose directory and model it may have.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SessionError
from retinue.core.events import Event, RunFinished, RunForgotten, RunQueued, RunSteered
from retinue.core.fold import fold, fold_record
from retinue.core.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.clock import make_uuid
from retinue.engine.inbox import to_text
from retinue.engine.notify import CUSTOM_TYPE, list_told
from retinue.engine.request import RunRequest, read_request
from retinue.engine.session_path import find_file, find_tree
from retinue.sessions.log import Session
from retinue.sessions.tree import find_main

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True)
class Remains:
    """The runs of a session as its last process left them, in the order they were accepted."""

    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, RunRequest] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    """What was said to runs and may not have reached them: all of it, until `drop_used` has looked."""
    ends: dict[str, int] = field(default_factory=dict)
    """How often each run has ended, counting resumptions."""
    damaged: int = 0
    """Entries that could not be read."""

    def adopt(self, root_id: str) -> None:
        """Let the main agent's runs be this one's: it has another id in each process."""
        for run_id, run in self.runs.items():
            if run.depth <= 1:
                self.runs[run_id] = msgspec.structs.replace(run, parent_id=root_id)

    def drop_used(self, read_words: Callable[[Run], Iterable[str]]) -> None:
        """Keep of what was said only what the runs have not read; `read_words` are the user's words in a session."""
        for run_id, said in list(self.said.items()):
            used = Counter(read_words(self.runs[run_id]))
            used[self.requests[run_id].task] -= 1  # its task is no answer to somebody who said the same
            left = []
            for text in said:
                if used[text] > 0:
                    used[text] -= 1
                else:
                    left.append(text)
            self.said[run_id] = left

    def find_untold(self, main: Session, root_id: str, clock: Clock) -> list[Run]:
        """The finished runs whose parent has neither read of their end nor been told of it."""
        ended = [run for run in self.runs.values() if run.status.is_final and run.is_background and not run.is_read]
        ended = [run for run in ended if not run.is_guest]  # who started those is told elsewhere
        told = {root_id: set(_list_told(main))}
        for parent_id in {run.parent_id for run in ended} - {root_id}:
            request = self.requests.get(parent_id)
            told[parent_id] = set() if request is None else _read_told(parent_id, request, main, clock)
        return [run for run in ended if (run.id, run.attempt) not in told[run.parent_id]]


def interrupt(run: Run) -> Outcome:
    """The outcome of a run whose process died."""
    error = "the process that worked on it ended"
    return Outcome(Status.INTERRUPTED, Reason.CRASH, error=error)


def _read_told(parent_id: str, request: RunRequest, main: Session, clock: Clock) -> set[tuple[str, int]]:
    """The ends of runs that a parent's session tells of, by run and attempt."""
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


def read_remains(entries: Iterable[Any]) -> Remains:
    """Fold the crew entries of a main session."""
    remains = Remains()
    for data in entries:
        try:
            event: Event = msgspec.convert(data, type=Event)
            _apply(remains, event)
        except (msgspec.ValidationError, KeyError):
            remains.damaged += 1
    return remains


def _apply(remains: Remains, event: Event) -> None:
    if isinstance(event, RunQueued):
        # Ids become names of files.
        if event.run.id != event.run_id or not _ID.fullmatch(event.run_id):
            raise KeyError(event.run_id)
        known = remains.runs.get(event.run_id)
        if known is None:
            remains.runs[event.run_id] = event.run
        else:
            fold(known, event)
            remains.runs[event.run_id] = remains.runs.pop(event.run_id)  # it waits behind those accepted before
        remains.requests[event.run_id] = read_request(event.request)
    elif isinstance(event, RunForgotten):
        del remains.runs[event.run_id], remains.requests[event.run_id]
        remains.said.pop(event.run_id, None)
    else:
        if isinstance(event, RunSteered):
            remains.said.setdefault(event.run_id, []).append(event.text)
        elif isinstance(event, RunFinished):
            # A run that ended by itself has read what it was told, or was done without it.
            if event.outcome.reason is not Reason.CRASH:
                remains.said.pop(event.run_id, None)
            remains.ends[event.run_id] = remains.ends.get(event.run_id, 0) + 1
        fold_record(remains.runs[event.run_id], event)


def has_left_copies(remains: Remains) -> bool:
    """Whether a run that works in a copy was cut off."""
    cut_off = (run.id for run in remains.runs.values() if run.status is Status.RUNNING)
    return any(remains.requests[run_id].isolation is not None for run_id in cut_off)


class SavedCopies(Protocol):
    """Finds what copies of repositories were saved to."""

    async def find_branch(self, run_id: str, cwd: Path) -> str:
        """The branch of a run; empty for none."""
        ...


async def find_branches(remains: Remains, returning: Iterable[str], copies: SavedCopies, cwd: Path) -> None:
    """Note the branches of runs that are continued: their copies may have been tidied up by another process."""
    for run_id in returning:
        run, request = remains.runs[run_id], remains.requests[run_id]
        if request.isolation == "worktree" and not run.branch:
            run.branch = await copies.find_branch(run_id, _find_cwd(remains, run, cwd))


def _find_cwd(remains: Remains, run: Run | None, cwd: Path) -> Path:
    """Where a run was to work; in a copy of that place the same branches are found."""
    while run is not None:
        if asked := remains.requests[run.id].cwd:
            return Path(asked)
        run = remains.runs.get(run.parent_id)
    return cwd


class SavedWork(Protocol):
    """What became of a copy that a dead process has left."""

    @property
    def branch(self) -> str:
        """Where its changes are; empty for nowhere."""
        ...

    @property
    def notes(self) -> str:
        """What is to be said of it behind the run's report."""
        ...


class Aftermath:
    """Judges the dead runs of one main session."""

    def __init__(self, main: Session, clock: Clock, remains: Remains, copies: Mapping[str, SavedWork]) -> None:
        """`copies` is what became of the copies that dead processes have left, by run."""
        self._main = main
        self._requests = remains.requests
        self._clock = clock
        self._copies = copies

    def judge(self, run: Run) -> Outcome:
        """How a run that was cut off has ended."""
        outcome = replace(self._count(run, interrupt(run)), is_unbegun=self._is_unbegun(run))
        if (left := self._copies.get(run.id)) is None:
            return outcome
        return replace(outcome, branch=left.branch, notes=left.notes)

    def read_words(self, run: Run) -> list[str]:
        """What the user has said to a run, as its session has it."""
        session = self._open(run)
        if session is None:
            return []
        entries = session.entries()
        session.close()
        return [to_text(entry.message) for entry in entries if isinstance(entry.message, UserMessage)]

    def _count(self, run: Run, outcome: Outcome) -> Outcome:
        """The same with what the run had said and used in this attempt when its process died."""
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
        """Whether it had done nothing: a file below another session's comes into being with the first reply."""
        path = self._find_file(run)
        if path is None or path.exists():
            return False
        return find_tree(self._main.tree, path) is not None or find_main(path) != path

    def _find_file(self, run: Run) -> Path | None:
        """Where a run keeps its session; None for one that keeps none."""
        return find_file(self._main.tree, run.id, self._requests[run.id])

    def _open(self, run: Run) -> Session | None:
        path = self._find_file(run)
        if path is None or not path.exists():
            return None
        try:
            return Session.open(path, clock=self._clock, new_id=make_uuid, tree=find_tree(self._main.tree, path))
        except SessionError:
            return None


class Returning:
    """The runs that are to go on and are not at work again yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Run]] = {}
        """By the one that comes back: those below it."""

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._waiting

    def add(self, run: Run) -> bool:
        """Expect a run, whose parent was added before it; whether it may start now."""
        self._waiting[run.id] = []
        above = self._waiting.get(run.parent_id)
        if above is not None:
            above.append(run)
        return above is None

    def settle(self, run_id: str) -> Sequence[Run]:
        """Expect a run no longer, be it at work or gone; returns those that waited for it."""
        return self._waiting.pop(run_id, ())
