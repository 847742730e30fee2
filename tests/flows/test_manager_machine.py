import asyncio
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from retinue.core.messages import CustomMessage, Usage
from retinue.core.model import ModelInfo, Reply
from retinue.core.run import Status
from retinue.engine.backend import LocalBackend
from retinue.engine.budget import BudgetedModel, Lease, Leases, bound_input
from retinue.engine.clock import make_uuid
from retinue.engine.journal import CREW
from retinue.engine.limits import Bounds
from retinue.engine.manager import Manager
from retinue.engine.notify import CUSTOM_TYPE, list_told
from retinue.engine.recovery import read_remains
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.sessions.log import Session
from retinue.surfaces.fleet.delivery import open_notifier
from retinue.testing.clock import FakeClock
from tests.run_setup import build_setup

SLOTS, BUDGET = 2, 12_000
INFO = ModelInfo("p", "m", "a", max_tokens=300)


class Gate:
    """A model that answers when it is told to; without a run, at once."""

    info = INFO

    def __init__(self, crew=None, run_id=""):
        self.crew, self.run_id = crew, run_id

    async def reply(self, request, draft):
        if self.crew is not None:
            most = bound_input(request) + request.max_tokens
            self.crew.gates[self.run_id] = gate = asyncio.get_running_loop().create_future()
            used = most  # of what is cut off all may have been counted
            try:
                used = max(1, round(most * await gate))
            finally:
                self.crew.billed += used
                self.crew.gates.pop(self.run_id, None)
            draft.usage = Usage(total_tokens=used)
        draft.add(draft.open_text(), "done")
        return Reply(draft.finish("stop"))


class Crew:
    """One process: the Manager, its main agent and whoever is told."""

    def __init__(self, path, clock, *, number):
        self.path, self.clock = path, clock
        self.gates = {}
        self.billed = 0
        self.working, self.started = set(), []
        self.lease = Lease(BUDGET)
        self.leases = Leases(self.lease)
        self.main = self._make_run(f"main{number}", path, Gate())
        self.backend = LocalBackend()
        self.numbers = iter(range(10_000))
        self.manager = Manager(
            self.main,
            self,
            self.backend,
            clock=clock,
            new_id=lambda: f"r{number}x{next(self.numbers)}",
            bounds=Bounds(SLOTS),
            open_notifier=lambda manager: open_notifier(manager, self.backend, self._render, clock),
        )
        self.notifier = self.manager.notifier

    def _make_run(self, run_id, path, model):
        new = {"clock": self.clock, "new_id": make_uuid}
        is_old = path is not None and path.exists()
        session = Session.open(path, **new) if is_old else Session.create(cwd="/", directory=None, path=path, **new)
        return LiveRun(build_setup(run_id, Path("/"), model), session, clock=self.clock)

    def _render(self, runs, *, is_group, is_partial):
        first, *others = ({"id": run.id, "attempt": run.attempt} for run in runs)
        return CustomMessage(CUSTOM_TYPE, "ended", display=True, timestamp=1, details={**first, "others": others})

    def find_grant(self, run_id):
        return None

    @asynccontextmanager
    async def open(self, run, request, parent):
        self.working.add(run.id)
        self.started.append((run.id, run.attempt))
        lease = self.leases.open(run.id, run.parent_id, None, None)
        try:
            yield self._make_run(run.id, None, BudgetedModel(Gate(self, run.id), lease))
        finally:
            self.working.discard(run.id)

    async def begin(self):
        await self.backend.__aenter__()
        self.manager.recover(read_remains(self.main.session.customs(CREW)))

    async def close(self):
        self.notifier.close()
        self.manager.stop_all()
        await asyncio.sleep(0)  # what has a slot but has not begun must see that it is stopped
        await self.backend.__aexit__(None, None, None)
        self.main.session.close()

    @property
    def told(self):
        """How often each end was announced."""
        return Counter(told for details in self.main.session.custom_details(CUSTOM_TYPE) for told in list_told(details))


class ManagerMachine(RuleBasedStateMachine):
    """Spawns, stops, resumes, reads and kills; at the end each end of a run was announced once, or was read."""

    def __init__(self):
        super().__init__()
        self.folder = TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.lives = 0
        self.accepted, self.read_unseen = [], set()
        self.crew = self.begin(Path(self.folder.name) / "0.jsonl")

    def begin(self, path):
        async def make():
            crew = Crew(path, self.clock, number=self.lives)
            await crew.begin()
            return crew

        crew = self.loop.run_until_complete(make())
        self.do(0)
        return crew

    def do(self, seconds):
        self.loop.run_until_complete(self.clock.advance(seconds))

    def pick(self, number, *, final):
        """A run that has ended, or one that has not; None where there is none."""
        runs = [run for run in self.crew.manager.list_runs() if run.status.is_final is final]
        return runs[number % len(runs)] if runs else None

    def call(self, work):
        async def within():
            return work()

        made = self.loop.run_until_complete(within())
        self.do(0)
        return made

    @rule(join=st.sampled_from(["async", "group", "smart"]), count=st.integers(1, 4))
    def spawn(self, join, count):
        request = RunRequest(agent="a", task="work", description="d", surface="fleet", join=join, keeps_session=False)
        for _ in range(count):
            run = self.call(lambda: self.crew.manager.spawn(request))
            self.accepted.append((run.id, run.attempt))

    @precondition(lambda self: self.crew.gates)
    @rule(number=st.integers(0, 9), share=st.floats(0, 1))
    def finish(self, number, share):
        gates = list(self.crew.gates.values())
        self.call(lambda: gates[number % len(gates)].set_result(share))

    @rule(number=st.integers(0, 9))
    def stop(self, number):
        if (run := self.pick(number, final=False)) is not None:
            assert self.call(lambda: self.crew.manager.stop(run.id))

    @rule(number=st.integers(0, 9))
    def resume(self, number):
        if (run := self.pick(number, final=True)) is not None:
            again = self.call(lambda: self.crew.manager.resume(run.id, "go on"))
            self.accepted.append((again.id, again.attempt))

    @rule(number=st.integers(0, 9))
    def read(self, number):
        if (run := self.pick(number, final=True)) is not None:
            if (run.id, run.attempt) not in self.crew.told:
                self.read_unseen.add((run.id, run.attempt))
            self.call(lambda: self.crew.manager.read(run.id))

    @rule(seconds=st.sampled_from([0.05, 0.3, 31.0]))
    def let_time_pass(self, seconds):
        self.do(seconds)

    @rule()
    def prompt(self):
        self.loop.run_until_complete(self.crew.main.prompt("And?"))

    @rule()
    def kill_and_recover(self):
        self.lives += 1
        path = Path(self.folder.name) / f"{self.lives}.jsonl"
        self.crew.main.journal.flush()
        if self.crew.path.exists():
            shutil.copy(self.crew.path, path)
        waiting = [run.id for run in self.crew.manager.list_runs() if run.status is Status.QUEUED]
        self.loop.run_until_complete(self.crew.close())
        self.accepted = [(run_id, attempt) for run_id, attempt in self.accepted if run_id in waiting]
        self.crew = self.begin(path)

    @invariant()
    def slots_are_never_exceeded(self):
        assert len(self.crew.working) <= SLOTS

    @invariant()
    def runs_start_in_their_order(self):
        started = set(self.crew.started)
        assert self.crew.started == [each for each in self.accepted if each in started]
        waiting = [run for run in self.crew.manager.list_runs() if run.status is Status.QUEUED]
        for run in waiting if started else ():
            last = self.accepted.index(self.crew.started[-1])
            assert (run.id, run.attempt) in started or self.accepted.index((run.id, run.attempt)) > last

    @invariant()
    def budget_is_conserved(self):
        lease = self.crew.lease
        held, _ = lease.held
        assert lease.spent.total_tokens == self.crew.billed
        assert 0 <= held <= BUDGET - lease.spent.total_tokens
        assert (held > 0) == bool(self.crew.gates)

    @invariant()
    def nothing_is_announced_twice(self):
        told = self.crew.told
        assert max(told.values(), default=1) == 1
        assert not self.read_unseen & set(told)

    def teardown(self):
        crew = self.crew
        while crew.gates:
            self.finish(0, 0.5)
        self.do(120)
        self.prompt()
        for run in crew.manager.list_runs():
            assert run.status.is_final
            assert crew.told[run.id, run.attempt] == ((run.id, run.attempt) not in self.read_unseen)
        self.loop.run_until_complete(crew.close())
        self.loop.close()
        self.folder.cleanup()


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(stateful_step_count=20)
