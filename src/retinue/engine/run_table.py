"""The table of all runs of one main agent: state, request, parent, and messages sent before the start.

A run changes only by an event, which is recorded before anyone can see it. The Manager decides what happens to a run.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from retinue.core.events import (
    Event,
    RunFinished,
    RunForgotten,
    RunQueued,
    RunRead,
    ToolFinished,
)
from retinue.core.fold import fold, fold_record
from retinue.core.run import Run
from retinue.engine.bus import Bus
from retinue.engine.recovery import StoredRuns
from retinue.engine.request import RunRequest, store_request


class RunTable:
    """The runs of one main agent, by id and by parent."""

    def __init__(self, root_id: str, bus: Bus) -> None:
        """`root_id` and `bus` are those of the main agent; its bus carries the events of all its runs."""
        self._root_id = root_id
        self._bus = bus
        self._runs: dict[str, Run] = {}
        self._requests: dict[str, RunRequest] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._said: dict[str, list[str]] = {}
        self.past: dict[str, Run] = {}
        """Runs that were forgotten, without their texts: front ends still show and count them."""

    def __getitem__(self, run_id: str) -> Run:
        return self._runs[run_id]

    def find(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def find_request(self, run_id: str) -> RunRequest:
        """Return the request of a run. Raises KeyError if the run is unknown."""
        return self._requests[run_id]

    def find_occasion(self, occasion: str) -> Run | None:
        """Return the run that was started for an occasion, such as one firing of a schedule."""
        found = (run_id for run_id, request in self._requests.items() if request.occasion == occasion)
        return self._runs.get(next(found, ""))

    def list_newest(self) -> list[Run]:
        """Return all runs, newest first."""
        newest = reversed(self._runs.values())
        return sorted(newest, key=lambda run: run.started_ms or run.queued_ms, reverse=True)

    def list_asking(self) -> list[Run]:
        """Return the runs with open questions."""
        return [run for run in self._runs.values() if run.questions]

    def list_active(self) -> list[Run]:
        """Return queued and working runs in the order they were accepted."""
        return [run for run in self._runs.values() if not run.status.is_final]

    def list_parents(self) -> list[str]:
        return list(self._children)

    def list_children(self, run_id: str) -> list[Run]:
        return [self._runs[child_id] for child_id in self._children.get(run_id, ())]

    def has_active_below(self, run_id: str) -> bool:
        """Return whether a run below this one is queued or working, or will continue when its question is answered."""
        children = self.list_children(run_id)
        return any(
            not child.status.is_final or child.questions or self.has_active_below(child.id) for child in children
        )

    def has_active_above(self, run: Run) -> bool:
        """Return whether any run above this one, except the main agent, is queued or working."""
        parent = self._runs.get(run.parent_id)
        return parent is not None and (not parent.status.is_final or self.has_active_above(parent))

    def find_reader(self, run: Run) -> str:
        """Return the nearest run above this one that is queued or working; at last the main agent."""
        parent = self._runs.get(run.parent_id)
        return run.parent_id if parent is None or not parent.status.is_final else self.find_reader(parent)

    def has_parent(self, run: Run) -> bool:
        """Return whether the run's parent is queued or working; the main agent always counts as working."""
        parent = self._runs.get(run.parent_id)
        return run.parent_id == self._root_id or (parent is not None and not parent.status.is_final)

    def add(self, run: Run, request: RunRequest) -> None:
        """Add an accepted run, or a further attempt of a known one, and publish that."""
        self._put(run, request)
        self.tell(RunQueued(run_id=run.id, run=run, request=store_request(request)))

    def take_over(self, remains: StoredRuns) -> None:
        """Add the runs of an earlier process; they are already recorded."""
        remains.adopt(self._root_id)
        for run in remains.past.values():
            self._lay_aside(run)
        for run_id, run in remains.runs.items():
            self._put(run, remains.requests[run_id])
        self._said.update({run_id: said for run_id, said in remains.said.items() if said})

    def tell(self, event: Event) -> None:
        """Apply an event to its run and publish it."""
        fold(self._runs[event.run_id], event)
        self._bus.publish(event)

    def tell_dead(self, event: RunFinished) -> None:
        """Apply and publish the end of a run of an earlier process."""
        fold_record(self._runs[event.run_id], event)
        self._bus.publish(event)

    def tell_all(self, events: Sequence[RunFinished]) -> None:
        for event in events:
            fold(self._runs[event.run_id], event)
        self._bus.publish_all(events)

    def tell_read(self, run_id: str, call_id: str, reader: Bus) -> None:
        """Mark a result as read by a tool call on the bus `reader`; recorded only when the call's own result is.

        So a crash in between loses nothing. From now on nobody is notified of the result.
        """

        def hear(event: Event) -> None:
            if isinstance(event, ToolFinished) and event.result.tool_call_id == call_id:
                stop_listening()
                self._bus.publish(RunRead(run_id=run_id))

        fold(self._runs[run_id], RunRead(run_id=run_id))
        stop_listening = reader.listen(hear, pieces=False)

    def say(self, run_id: str, text: str) -> None:
        self._said.setdefault(run_id, []).append(text)

    def list_said(self, run_id: str) -> list[str]:
        return list(self._said.get(run_id, ()))

    def take_said(self, run_id: str) -> Sequence[str]:
        """Remove and return the messages sent to a run before it started."""
        return self._said.pop(run_id, ())

    def forget(self, run_id: str) -> bool:
        """Remove a finished run and return True; False while a run below it is active."""
        run = self._runs.get(run_id)
        if run is None or not run.status.is_final or self.has_active_below(run_id):
            return False
        self.tell(RunForgotten(run_id=run_id))
        del self._runs[run_id], self._requests[run_id], self._children[run.parent_id][run_id]
        self._said.pop(run_id, None)
        self._lay_aside(run)
        if not self._children.get(run_id):
            self._children.pop(run_id, None)
        return True

    def _lay_aside(self, run: Run) -> None:
        outcome = None if run.outcome is None else replace(run.outcome, text="", notes="")
        self.past[run.id] = replace(run, outcome=outcome)

    def _put(self, run: Run, request: RunRequest) -> None:
        self._runs[run.id] = run
        self._requests[run.id] = request
        self._children.setdefault(run.parent_id, {})[run.id] = None
