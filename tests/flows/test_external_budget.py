import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from retinue import Retinue
from retinue.core.events import ToolFinished
from retinue.core.run import Reason, Status
from retinue.testing import run_cli
from retinue.testing.server import MockServer
from retinue.tools.process_tree import list_descendants
from tests.flows.crew_world import call, repository

USED = ({"input": 3000, "output": 256}, {"input": 3300, "output": 256}, {"input": 3600, "output": 256})
LOOKER = "---\nname: looker\ndescription: d\ntools: read\n---\n\nLook around.\n"
BOSS = "---\nname: boss\ndescription: d\ntools: Agent, get_subagent_result\n---\n\nDelegate.\n"
TASK = "Look well. " * 400


def spend(words: str, *, last: str = "Seen.") -> list[dict]:
    """Three replies with two calls to those who were told these words."""
    match = {"last_user": words}
    *first, end = ({"match": match, "usage": used} for used in USED)
    return [*({**reply, "calls": [call("read", path="a.txt")]} for reply in first), {**end, "text": last}]


class Bill:
    """What a provider has counted, reply by reply."""

    def __init__(self, server: MockServer) -> None:
        self.server = server

    @property
    def tokens(self) -> int:
        said = (json.loads(request.body)["messages"] for request in self.server.requests)
        turns = [sum(message["role"] == "assistant" for message in messages) for messages in said]
        return sum(USED[min(turn, 2)]["input"] + 256 for turn in turns)


@asynccontextmanager
async def open_crew(root, agent_dir, replies, **settings) -> AsyncIterator[tuple[Retinue, Bill]]:
    (agent_dir / "agents").mkdir(exist_ok=True)
    for name, text in (("looker", LOOKER), ("boss", BOSS)):
        (agent_dir / "agents" / f"{name}.md").write_text(text)
    (agent_dir / "subagents.json").write_text(json.dumps({"runner": "process", "maxConcurrent": 8, **settings}))
    async with MockServer(replies) as server:
        # A reply is never shorter than this, so that none is asked for what the server does not know.
        (agent_dir / "models.json").write_text(json.dumps(server.models_json(maxTokens=256)))
        async with Retinue(repository(root), model="mock/mock-1") as crew:
            yield crew, Bill(server)


async def test_processes_never_pass_a_budget(tmp_path, agent_dir):
    async with open_crew(tmp_path, agent_dir, spend("Look well"), budget={"tokens": 60_000}) as (crew, bill):
        handles = [await crew.spawn("looker", TASK) for _ in range(8)]
        outcomes = await asyncio.gather(*(handle.wait() for handle in handles))
    assert 40_000 < bill.tokens <= 60_000
    assert sum(outcome.usage.total_tokens for outcome in outcomes) == bill.tokens
    ends = {(outcome.status, outcome.reason) for outcome in outcomes}
    assert ends == {(Status.COMPLETED, Reason.DONE), (Status.STOPPED, Reason.BUDGET)}


async def test_rest_after_processes_is_right(tmp_path, agent_dir):
    ask = {"calls": [call("Agent", subagent_type="looker", prompt=TASK, description="look")]}
    said = (("begin", ask, {"text": "One."}), ("Seen.", ask, {"text": "Two."}))
    main = [{"match": {"last_user": words}, "usage": USED[2], **reply} for words, *two in said for reply in two]
    main[0]["usage"], main[1]["usage"] = USED[:2]
    results = list[str]()
    async with open_crew(tmp_path, agent_dir, [*spend("Look well"), *main], budget={"tokens": 100_000}) as (crew, bill):
        billed = list[int]()

        def hear(event):
            if isinstance(event, ToolFinished) and event.result.tool_name == "Agent":
                billed.append(bill.tokens)
                results.append(event.result.content[0].text)

        crew.listen(hear)
        await crew.prompt("begin " + "x" * 4000, settle=True)
    rests = [int(re.search(r"Budget left: (\d+) tokens", text)[1]) for text in results[:2]]
    assert (billed[1] > 15_000, rests) == (True, [100_000 - tokens for tokens in billed[:2]])


async def test_budget_holds_for_processes_below_processes(tmp_path, agent_dir):
    ask = {"calls": [call("Agent", subagent_type="looker", prompt=TASK, description="look")] * 4}
    boss = [{"match": {"last_user": "delegate"}, "usage": USED[0], **ask}]
    boss += [{"match": {"last_user": "delegate"}, "usage": USED[1], "text": "Waiting."}]
    replies = [*spend("Look well"), *boss, {"usage": USED[2], "text": "Done."}]
    async with open_crew(tmp_path, agent_dir, replies, budget={"tokens": 30_000}) as (crew, bill):
        handles = [await crew.spawn("boss", "delegate " * 500) for _ in range(2)]
        await asyncio.gather(*(handle.wait() for handle in handles))
    assert 20_000 < bill.tokens <= 30_000


async def test_killed_process_has_spent_its_hold(tmp_path, agent_dir):
    replies = [{"delay_ms": 8_000, "text": "never", "usage": USED[0]}]
    async with open_crew(tmp_path, agent_dir, replies, budget={"tokens": 20_000}) as (crew, bill):
        handle = await crew.spawn("looker", TASK)
        while not bill.server.requests:
            await asyncio.sleep(0.02)
        for pid in list_descendants(os.getpid()):
            if b"\0-m\0retinue\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        first = await handle.wait()
        async with asyncio.timeout(20):
            second = await (await crew.spawn("looker", TASK * 3)).wait()
    assert (first.status, first.reason) == (Status.FAILED, Reason.CRASH)
    assert (second.status, second.reason, len(bill.server.requests)) == (Status.STOPPED, Reason.BUDGET, 1)


def test_budget_that_cannot_be_asked_ends_a_child(tmp_path, agent_dir):
    env = {"PI_SUBAGENT_CHILD": "1", "PI_CODING_AGENT_DIR": str(agent_dir), "RETINUE_BUDGET_FD": "77"}
    done = run_cli(["-p", "hi"], tmp_path, env)
    assert (done.status, "RETINUE_BUDGET_FD '77' is not an open socket" in done.stderr) == (2, True)
