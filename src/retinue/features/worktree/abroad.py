"""What stands here around an isolated run that works elsewhere: it has a copy of its own there, if there can be one."""

from retinue.core.run import Outcome
from retinue.engine.setup import RunSetup
from retinue.features.worktree.copies import check_place


class Abroad:
    """The feature `isolation: worktree` of a run on another machine."""

    name = "worktree abroad"

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Refuse before it is sent what would be refused here. Raises IsolationFailed."""
        await check_place(setup.cwd)
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        """Its work comes home with it."""
        return outcome
