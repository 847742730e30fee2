"""Brings the cases of one run on a worker before those who judge it here, and their rulings back to it.

Who is not there any more has not answered: what a run waits for is left to whoever comes back, and no default counts.
"""

import asyncio
from collections.abc import Callable

from retinue.durable.cluster.approval import Case
from retinue.durable.cluster.approval_judge import Court
from retinue.durable.cluster.sender import Cluster


class Hearing:
    """The cases of one run, while this face follows it."""

    def __init__(self, cluster: Cluster, run: str, court: Court, is_attended: Callable[[], bool]) -> None:
        """`is_attended`: whether a person is there who could be asked."""
        self._cluster = cluster
        self._run = run
        self._court = court
        self._is_attended = is_attended
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        """Cases whose question nobody answered before the last person left."""
        self._telling = asyncio.Lock()
        self.has_sat = False
        """Whether there was ever anything to judge."""

    async def sit(self) -> None:
        """Judge for ever; a cancel takes back what nobody has answered."""
        async with asyncio.TaskGroup() as group:
            while True:
                cases = await self._cluster.read_cases(self._run)
                open_keys = {case.key for case in cases}
                # What its worker does not wait for any more is not to be decided by anybody.
                for key in [key for key in self._busy if key not in open_keys]:
                    self._busy[key].cancel()
                for case in cases:
                    is_left = case.key in self._left and not self._is_attended()
                    if case.key not in self._busy and not is_left:
                        self._busy[case.key] = group.create_task(self._hear(case))
                await self._cluster.await_cases(self._run)

    async def close(self) -> None:
        """The run has ended: those who only watch are told the rest."""
        for case in await self._cluster.read_cases(self._run):
            if not case.waits:
                await self._hear(case)
        await self._court.close()
        await self._cluster.forget_cases(self._run)

    async def _hear(self, case: Case) -> None:
        try:
            if case.waits:
                await self._rule(case)
            else:
                # One after the other, in the order in which it happened.
                async with self._telling:
                    await self._cluster.settle(self._run, case, await self._court.judge(case))
        finally:
            self._busy.pop(case.key, None)

    async def _rule(self, case: Case) -> None:
        had_face = self._is_attended()
        ruling = await self._court.judge(case)
        if had_face and not ruling.passes and not self._is_attended():
            # Perhaps refused only because the last person left: whoever comes back is asked again.
            self._left.add(case.key)
            return
        self._left.discard(case.key)
        await self._cluster.settle(self._run, case, ruling)
