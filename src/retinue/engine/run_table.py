"""The record of a crew: its runs, what was asked for with each, who started it, what it was told before it began.

A run changes by an event only, which is published, and so written, before anyone can see it. What is to happen to a run
is decided by the Manager.
"""

from collections.abc import Sequence

from retinue.core.events import (
    Event,
    RunFinished,
    RunForgotten,
    RunQueued,
    RunRead,
    RunStarted,
    RunSteered,
    ToolFinished,
)
from retinue.core.fold import fold, fold_record
from retinue.core.run import Run
from retinue.engine.bus import Bus
from retinue.engine.recovery import Remains
from retinue.engine.request import RunRequest, store_request


class Register:
    """The runs of one main agent, by id and by parent."""

    def __init__(self, root_id: str, bus: Bus) -> None:
        """`root_id` is the main agent's, whose bus tells of all its runs."""
        self._root_id = root_id
        self._bus = bus
        self._runs: dict[str, Run] = {}
        self._requests: dict[str, RunRequest] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._said: dict[str, list[str]] = {}

    def __getitem__(self, run_id: str) -> Run:
        return self._runs[run_id]

    def find(self, run_id: str) -> Run | None:
        """The run with this id."""
        return self._runs.get(run_id)

    def find_request(self, run_id: str) -> RunRequest:
        """What was asked for with a run that is there."""
        return self._requests[run_id]

    def find_occasion(self, occasion: str) -> Run | None:
        """The run that an occasion has had."""
        found = (run_id for run_id, request in self._requests.items() if request.occasion == occasion)
        return self._runs.get(next(found, ""))

    def list_newest(self) -> list[Run]:
        """All runs, newest first."""
        newest = reversed(self._runs.values())
        return sorted(newest, key=lambda run: run.started_ms or run.queued_ms, reverse=True)

    def list_active(self) -> list[Run]:
        """Those that wait or work, in the order they were accepted."""
        return [run for run in self._runs.values() if not run.status.is_final]

    def list_parents(self) -> list[str]:
        """Whoever has started a run."""
        return list(self._children)

    def list_children(self, run_id: str) -> list[Run]:
        """The runs that a run started."""
        return [self._runs[child_id] for child_id in self._children.get(run_id, ())]

    def has_active_below(self, run_id: str) -> bool:
        """Whether anything this run started, directly or not, is queued or working."""
        children = self.list_children(run_id)
        return any(not child.status.is_final or self.has_active_below(child.id) for child in children)

    def has_active_above(self, run: Run) -> bool:
        """Whether any of those that led to it is queued or working, the main agent left out."""
        parent = self._runs.get(run.parent_id)
        return parent is not None and (not parent.status.is_final or self.has_active_above(parent))

    def has_parent(self, run: Run) -> bool:
        """Whether whoever started it is there: the main agent always is."""
        parent = self._runs.get(run.parent_id)
        return run.parent_id == self._root_id or (parent is not None and not parent.status.is_final)

    def add(self, run: Run, request: RunRequest) -> None:
        """A run was accepted, for the first time or again."""
        self._put(run, request)
        self.tell(RunQueued(run_id=run.id, run=run, request=store_request(request)))

    def take_over(self, remains: Remains) -> None:
        """Know the runs that an earlier process left; they are on record already."""
        remains.adopt(self._root_id)
        for run_id, run in remains.runs.items():
            self._put(run, remains.requests[run_id])
        self._said.update({run_id: said for run_id, said in remains.said.items() if said})

    def tell(self, event: RunQueued | RunStarted | RunFinished | RunRead | RunForgotten | RunSteered) -> None:
        """Something has happened to a run."""
        fold(self._runs[event.run_id], event)
        self._bus.publish(event)

    def tell_dead(self, event: RunFinished) -> None:
        """A run of an earlier process has come to this end."""
        fold_record(self._runs[event.run_id], event)
        self._bus.publish(event)

    def tell_all(self, events: Sequence[RunFinished]) -> None:
        """The same for ends that come together."""
        for event in events:
            fold(self._runs[event.run_id], event)
        self._bus.publish_all(events)

    def tell_read(self, run_id: str, call_id: str, reader: Bus) -> None:
        """A call of the run on this bus reads a result: on record only when the call's own is.

        So a crash in between loses nothing. From now on nobody tells of the result.
        """

        def hear(event: Event) -> None:
            if isinstance(event, ToolFinished) and event.result.tool_call_id == call_id:
                stop_listening()
                self._bus.publish(RunRead(run_id=run_id))

        fold(self._runs[run_id], RunRead(run_id=run_id))
        stop_listening = reader.listen(hear, pieces=False)

    def say(self, run_id: str, text: str) -> None:
        """Keep what a run was told before it began."""
        self._said.setdefault(run_id, []).append(text)

    def take_said(self, run_id: str) -> Sequence[str]:
        """What a run was told before it began, which it is told now."""
        return self._said.pop(run_id, ())

    def forget(self, run_id: str) -> bool:
        """Drop a finished run, unless something it started still works."""
        run = self._runs.get(run_id)
        if run is None or not run.status.is_final or self.has_active_below(run_id):
            return False
        self.tell(RunForgotten(run_id=run_id))
        del self._runs[run_id], self._requests[run_id], self._children[run.parent_id][run_id]
        self._said.pop(run_id, None)
        if not self._children.get(run_id):
            self._children.pop(run_id, None)
        return True

    def _put(self, run: Run, request: RunRequest) -> None:
        self._runs[run.id] = run
        self._requests[run.id] = request
        self._children.setdefault(run.parent_id, {})[run.id] = None
