"""What is left of runs whose process died: their last words, and the branch their work was saved to."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SessionError
from retinue.core.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage
from retinue.core.run import Outcome, Run, Status
from retinue.engine.ids import make_uuid
from retinue.engine.inbox import to_text
from retinue.engine.recovery import Remains, interrupt
from retinue.engine.session_path import find_file, find_tree
from retinue.sessions.log import Session
from retinue.sessions.tree import find_main

if TYPE_CHECKING:
    from retinue.features.worktree.leftovers import Leftover
    from retinue.features.worktree.workshop import Workshop


def has_left_copies(remains: Remains) -> bool:
    """Whether a run that works in a copy was cut off."""
    cut_off = (run.id for run in remains.runs.values() if run.status is Status.RUNNING)
    return any(remains.requests[run_id].isolation is not None for run_id in cut_off)


async def find_branches(remains: Remains, returning: Iterable[str], workshop: "Workshop", cwd: Path) -> None:
    """Note the branches of runs that are continued: their copies may have been tidied up by another process."""
    for run_id in returning:
        run, request = remains.runs[run_id], remains.requests[run_id]
        if request.isolation == "worktree" and not run.branch:
            run.branch = await workshop.find_branch(run_id, _find_cwd(remains, run, cwd))


def _find_cwd(remains: Remains, run: Run | None, cwd: Path) -> Path:
    """Where a run was to work; in a copy of that place the same branches are found."""
    while run is not None:
        if asked := remains.requests[run.id].cwd:
            return Path(asked)
        run = remains.runs.get(run.parent_id)
    return cwd


class Aftermath:
    """Judges the dead runs of one main session."""

    def __init__(self, main: Session, clock: Clock, remains: Remains, copies: "Mapping[str, Leftover]") -> None:
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
        from retinue.features.worktree.feature import render_kept

        lines = render_kept(left.kept, left.repository)
        return replace(outcome, branch=left.kept.branch, notes="\n".join(("\n\n---", *lines)) if lines else "")

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
