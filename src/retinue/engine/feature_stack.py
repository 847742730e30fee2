"""The features around one run: entered in their order, undone in reverse, whatever comes in between.

Knows no conversation; when they are entered and left is the run's business.
"""

import msgspec

from retinue.core.errors import IsolationFailed, RetinueError
from retinue.core.run import Outcome, Reason, Status
from retinue.engine.loop import Ending
from retinue.engine.scope import run_shielded
from retinue.engine.setup import Feature, RunSetup


class Enclosure:
    """What stands around one run now."""

    def __init__(self) -> None:
        self.outcome = Outcome(Status.FAILED, Reason.CRASH)
        """What leaving has made of the run's outcome, also when a cancel came in between."""
        self._entered: list[Feature] = []

    def __bool__(self) -> bool:
        return bool(self._entered)

    async def enter(self, setup: RunSetup) -> RunSetup | Ending:
        """The setup as they change it; one that cannot be entered ends the run."""
        for feature in setup.features:
            try:
                setup = await feature.enter(setup)
            except Exception as error:
                return Ending(Reason.ERROR, error=_tell_failure(feature, error))
            self._entered.append(feature)
        return setup

    async def leave(self, outcome: Outcome, limit_s: float) -> None:
        """Undo them within a time; what fails is part of the outcome."""
        entered, self._entered, self.outcome = self._entered, [], outcome

        async def leave_all() -> None:
            while entered:
                try:
                    self.outcome = await entered[-1].leave(self.outcome)
                except Exception as error:
                    self.outcome = _add_failure(self.outcome, _tell_failure(entered[-1], error))
                entered.pop()

        try:
            await run_shielded(leave_all(), limit_s)
        finally:
            for feature in reversed(entered):
                self.outcome = _add_failure(self.outcome, f"{feature.name}: not undone within {limit_s:g} s")


def _tell_failure(feature: Feature, error: Exception) -> str:
    if isinstance(error, IsolationFailed):
        return str(error)  # callers know it by how it begins
    # A message of ours is whole; any other exception means little without its kind.
    kind = "" if isinstance(error, RetinueError) else f"{type(error).__name__}: "
    return f"{feature.name}: {kind}{error}"


def _add_failure(outcome: Outcome, error: str) -> Outcome:
    """The outcome of a run that a feature has spoilt: what was said stays, a success is none any more."""
    error = "; ".join(filter(None, (outcome.error, error)))
    if outcome.status is not Status.COMPLETED:
        return msgspec.structs.replace(outcome, error=error)
    return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=error)
