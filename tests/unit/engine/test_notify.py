import asyncio
import random

import pytest

from retinue.core.messages import CustomMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.notify import GROUP_S, HOLD_S, Notifier
from retinue.testing.clock import FakeClock


class Post:
    def __init__(self, group):
        self.group = group
        self.told = []
        self.woken = 0

    def start(self, work):
        self.group.create_task(work)

    def render(self, runs, *, is_group, is_partial):
        keys = [(run.id, run.attempt) for run in runs]
        return CustomMessage("t", "", True, 0, details={"runs": keys, "group": is_group, "partial": is_partial})

    def deliver(self, parent_id, message):
        self.woken += 1
        if message is not None:
            self.told.append(message.details)


class Scene:
    """Runs of two parents that begin and end at random times, in random modes, and are read now and then."""

    def __init__(self, seed, group):
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.post = Post(group)
        self.runs = []
        self.notifier = Notifier(self.post, self.clock, self.siblings)
        self.expected = set()

    def siblings(self, run):
        return [each for each in self.runs if each.parent_id == run.parent_id and each.id != run.id and is_active(each)]

    def start(self):
        number = len(self.runs)
        run = Run(
            id=f"r{number}",
            parent_id=self.random.choice("pq"),
            depth=1,
            agent="a",
            description="d",
            status=Status.RUNNING,
            join=self.random.choice(("async", "smart", "group")),
            is_background=self.random.random() > 0.1,
        )
        self.runs.append(run)
        self.notifier.queued(run)

    def end(self, run):
        run.status, run.outcome = Status.COMPLETED, Outcome(Status.COMPLETED, Reason.DONE)
        self.notifier.finished(run)
        if run.is_background:
            self.expected.add((run.id, run.attempt))

    def read(self, run):
        told = {key for details in self.post.told for key in details["runs"]}
        if (run.id, run.attempt) not in told:
            self.expected.discard((run.id, run.attempt))
        run.is_read = True

    async def step(self):
        active, done = [run for run in self.runs if is_active(run)], [run for run in self.runs if not is_active(run)]
        choice = self.random.random()
        if choice < 0.4:
            self.start()
        elif choice < 0.8 and active:
            self.end(self.random.choice(active))
        elif choice < 0.9 and done:
            self.read(self.random.choice(done))
        await self.clock.advance(self.random.choice((0, 0.01, 0.05, 0.15, 0.3, 3, 20)))


def is_active(run):
    return not run.status.is_final


@pytest.mark.sample(10)
@pytest.mark.spec("fleet:B60", "fleet:B61", "fleet:B62", "fleet:B63", "fleet:B64")
@pytest.mark.parametrize("seed", range(40))
async def test_every_unread_end_is_told_once(seed):
    async with asyncio.TaskGroup() as group:
        scene = Scene(seed, group)
        for _ in range(60):
            await scene.step()
        for run in scene.runs:
            if is_active(run):
                scene.end(run)
        await scene.clock.advance(2 * GROUP_S)
        told = [key for details in scene.post.told for key in details["runs"]]
        assert (sorted(told), len(told)) == (sorted(scene.expected), len(set(told)))
        assert [scene.notifier.expects(parent) for parent in "pq"] == [False, False]
        assert scene.notifier._groups == scene.notifier._batches == {}


async def test_dropped_report_still_wakes_the_parent():
    async with asyncio.TaskGroup() as group:
        scene = Scene(0, group)
        run = Run(id="r", parent_id="p", depth=1, agent="a", description="d", status=Status.RUNNING)
        scene.end(run)
        assert scene.notifier.expects("p")
        run.is_read = True
        await scene.clock.advance(HOLD_S)
        assert (scene.post.told, scene.post.woken, scene.notifier.expects("p")) == ([], 1, False)


async def test_closed_notifier_tells_nothing():
    async with asyncio.TaskGroup() as group:
        scene = Scene(0, group)
        runs = [Run(id=name, parent_id="p", depth=1, agent="a", description="d") for name in "ab"]
        scene.end(runs[0])
        scene.notifier.close()
        scene.end(runs[1])
        await scene.clock.advance(60)
        assert scene.post.told == []


async def test_run_that_ends_while_another_is_told_of_is_told_once():
    async with asyncio.TaskGroup() as group:
        scene = Scene(0, group)
        one, two = (Run(id=id, parent_id="p", depth=1, agent="a", description="d", is_background=True) for id in "12")
        deliver = scene.post.deliver

        def deliver_and_end(parent_id, message):
            deliver(parent_id, message)
            if not two.status.is_final:
                asyncio.get_running_loop().call_soon(scene.end, two)

        scene.post.deliver = deliver_and_end
        scene.end(one)
        await scene.clock.advance(3 * HOLD_S)
        assert [details["runs"] for details in scene.post.told] == [[("1", 1)], [("2", 1)]]
