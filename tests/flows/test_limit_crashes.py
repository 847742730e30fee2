"""A tree of 50 runs at a provider with a five-hour window, killed while it waits: nothing is lost, nothing repeated."""

import asyncio
import random
import shutil
from collections import Counter

import pytest

from retinue import Request, Retinue, SessionWish, Status
from retinue.core.messages import AssistantMessage, TextContent, ToolCall, UserMessage
from retinue.core.model import Failure, ModelInfo, Reply
from retinue.testing.clock import FakeClock

WINDOW_S = 5 * 3600
CHILDREN, LEAVES, TURNS = 7, 6, 3
AGENTS = {
    "lead": "---\ndescription: leads\ntools: Agent, ls\nallowed_subagents: leaf\n---\nLead.",
    "leaf": "---\ndescription: works\ntools: ls\n---\nWork.",
}


class LimitedModel:
    """Answers a number of requests per window; counts what it is asked."""

    info = ModelInfo("mock", "limited", "mine", account="key-1")

    def __init__(self, clock, dice):
        self.clock, self.dice = clock, dice
        self.left = dice.randint(20, 90)
        self.opens_ms = 0
        self.answered = Counter()
        self.asked_while_closed = Counter()
        self.knows_ms = 0
        """The reset time that the caller has been told."""

    async def reply(self, request, draft):
        now_ms = self.clock.now_ms()
        task, turn = find_turn(request.messages)
        if now_ms < self.opens_ms and self.knows_ms == self.opens_ms:
            self.asked_while_closed[self.opens_ms] += 1
        await self.clock.sleep(self.dice.random())
        now_ms = self.clock.now_ms()
        if self.left == 0 and now_ms >= self.opens_ms:
            if self.opens_ms:
                self.left = self.dice.randint(20, 90)
                self.opens_ms = 0
            else:
                self.opens_ms = now_ms + WINDOW_S * 1000
        if self.left == 0:
            self.knows_ms = self.opens_ms
            rest_s = (self.opens_ms - now_ms) / 1000
            failure = Failure("rate", "limit", retryable=True, status=429, retry_after_s=rest_s)
            return Reply(draft.finish("error", error="limit"), failure)
        self.left -= 1
        self.answered[task, turn] += 1
        return self.answer(task, turn, draft)

    def answer(self, task, turn, draft):
        calls = []
        if task == "main" and turn == 0:
            calls = [spawn("lead", f"lead {number}") for number in range(CHILDREN)]
        elif task.startswith("lead") and turn == 0:
            calls = [spawn("leaf", f"leaf {task[5:]} {number}") for number in range(LEAVES)]
        elif task.startswith("leaf") and turn < TURNS:
            calls = [("ls", {})]
        if not calls:
            index = draft.open_text()
            draft.add(index, f"end of {task}")
            draft.close_text(index)
        for number, (name, arguments) in enumerate(calls):
            index = draft.open_call(f"c{turn}-{number}", name)
            draft.close_call(index, ToolCall(f"c{turn}-{number}", name, arguments))
        return Reply(draft.finish("toolUse" if calls else "stop"))


def spawn(agent, task):
    return "Agent", {"subagent_type": agent, "prompt": f"task: {task}", "description": task}


def find_turn(messages):
    said = [message for message in messages if isinstance(message, UserMessage)]
    texts = [block.text for block in said[0].content if isinstance(block, TextContent)] if said else []
    task = "\n".join(texts).rpartition("task: ")[2].partition("\n")[0].strip()
    return task, sum(isinstance(message, AssistantMessage) for message in messages)


async def drive(clock, dice, until):
    """Let the time pass, faster while everything waits."""
    for _ in range(20_000):
        if until():
            return
        await clock.advance(dice.choice([0.2, 1.0, 700.0]))
        await asyncio.sleep(0)
    raise AssertionError("it does not come to an end")


async def work_until(crew, clock, dice, until, save, *, is_new):
    """Let the main agent work; returns its outcome, or None if the condition came first and the files were saved."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(crew.prompt("task: main", settle=True) if is_new else crew.go_on())
        await drive(clock, dice, lambda: task.done() or until())
        if not task.done():
            save()
            task.cancel()
            return None
        return task.result()


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(100))
async def test_killed_trees_lose_and_repeat_nothing(tmp_path, agent_dir, seed):
    dice, clock = random.Random(seed), FakeClock()
    model, folder, work = LimitedModel(clock, dice), agent_dir / "kept", tmp_path / "work"
    agents = work / ".pi" / "agents"
    agents.mkdir(parents=True)
    for name, text in AGENTS.items():
        (agents / f"{name}.md").write_text(text)
    kind = seed // 4 % 3
    options = {"max_concurrent": 3 if kind == 1 else 60, "runner": "durable" if kind == 2 else "inprocess"}
    options["limits"] = {"wall_seconds": 9000, "idle_seconds": 400}
    kills, outcome, session = dice.randint(1, 3), None, SessionWish("new", "", str(folder))
    while outcome is None:
        request = Request(session=session, approve=True)
        crew = Retinue(work, model=model, request=request, clock=clock, **options)
        async with crew:
            assert crew.is_paused == (session.kind != "new")
            is_new, dies_ms = session.kind == "new", clock.now_ms() + dice.randint(1, WINDOW_S * 1000)

            def is_time(crew=crew, dies_ms=dies_ms, kills=kills):
                waits = any(run.status is Status.WAITING for run in crew.session_runs.runs)
                # A record is written in real time, so that a kill could fall between two calls of a reply.
                waits = waits and (kind != 2 or len(crew.session_runs.runs) == CHILDREN * (1 + LEAVES))
                return kills > 0 and waits and clock.now_ms() >= dies_ms

            def save():
                # What is on disk now is what a killed process would leave.
                shutil.copytree(agent_dir, tmp_path / "killed")

            outcome = await work_until(crew, clock, dice, is_time, save, is_new=is_new)
            session = SessionWish("named", crew.session_id, str(folder))
            runs = [(run.status, run.description) for run in crew.session_runs.runs]
        if outcome is None:
            kills -= 1
            shutil.rmtree(agent_dir)
            shutil.move(tmp_path / "killed", agent_dir)
    assert outcome is not None and outcome.status is Status.COMPLETED
    assert [run for run in runs if run[0] is not Status.COMPLETED] == []
    leaves = [f"leaf {a} {b}" for a in range(CHILDREN) for b in range(LEAVES)]
    wanted = {(leaf, turn) for leaf in leaves for turn in range(TURNS + 1)}
    assert wanted - set(model.answered) == set()
    assert {task for task, _ in model.answered} == {"main", *leaves, *(f"lead {number}" for number in range(CHILDREN))}
    assert {key: count for key, count in model.answered.items() if count > 1} == {}
    assert max(model.asked_while_closed.values(), default=0) <= 1
