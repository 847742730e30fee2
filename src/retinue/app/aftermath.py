"""What is left of runs whose process died: their last words, and the branch their work was saved to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SessionError
from retinue.core.messages import AssistantMessage
from retinue.core.run import Outcome, Run, Status
from retinue.engine.ids import make_uuid
from retinue.engine.manager import interrupt
from retinue.engine.recovery import Remains
from retinue.sessions.log import Session

if TYPE_CHECKING:
    from retinue.features.worktree.leftovers import Leftover


def has_left_copies(remains: Remains) -> bool:
    """Whether a run that works in a copy was cut off."""
    cut_off = (run.id for run in remains.runs.values() if run.status is Status.RUNNING)
    return any(remains.requests[run_id].isolation is not None for run_id in cut_off)


class Aftermath:
    """Judges the dead runs of one main session."""

    def __init__(self, main: Session, clock: Clock, copies: "Mapping[str, Leftover]") -> None:
        """`copies` is what became of the copies that dead processes have left, by run."""
        self._main = main
        self._clock = clock
        self._copies = copies

    def judge(self, run: Run) -> Outcome:
        """How a run that was cut off has ended."""
        outcome = interrupt(run, self._read_partial(run))
        if (left := self._copies.get(run.id)) is None:
            return outcome
        from retinue.features.worktree.feature import render_kept

        lines = render_kept(left.kept, left.repository)
        return replace(outcome, branch=left.kept.branch, notes="\n".join(("\n\n---", *lines)) if lines else "")

    def _read_partial(self, run: Run) -> str:
        """What a run had said when its process died."""
        path = self._main.tree.child_path(run.id) if self._main.tree is not None else None
        if path is None:
            return ""
        try:
            session = Session.open(path, clock=self._clock, new_id=make_uuid, tree=self._main.tree)
        except SessionError:
            return ""
        said = [m.text for m in session.context().messages if isinstance(m, AssistantMessage) and m.text.strip()]
        session.close()
        return said[-1] if said else ""
