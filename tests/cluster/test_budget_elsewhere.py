"""A budget holds for all that runs on workers start and for all beside them, wherever they work, whatever they ask."""

import asyncio
import json

import pytest

from retinue.settings.request import Request, SessionWish

pytestmark = pytest.mark.timeout(120)
BUDGET = 40_000
COST = 3_256
USED = {"usage": {"input": 3_000, "output": 256}}
LEAD = "---\nname: lead\ndescription: d\ntools: Agent, get_subagent_result\n{extra}\n---\n\nLead.\n"
DIGGER = "---\nname: digger\ndescription: d\ntools: read\n{extra}\n---\n\nDig.\n"


def play(world, lead, digger, **settings):
    """Leads who start four diggers each."""
    agents = world.project / ".pi" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD.format(extra=lead))
    (agents / "digger.md").write_text(DIGGER.format(extra=digger))
    words = {"prompt": "Dig well. " * 300, "description": "dig", "subagent_type": "digger"}
    spawn = [{"name": "Agent", "arguments": words}] * 4
    read = [{"name": "read", "arguments": {"path": "README.md"}}]
    world.settings |= {"maxConcurrent": 8, **settings}
    world.play(
        {"match": {"last_user": "^Lead"}, "calls": spawn, **USED},
        {"match": {"last_user": "^Lead"}, "text": "Led.", **USED},
        *[{"match": {"last_user": "^Dig"}, "calls": read, **USED}] * 2,
        {"match": {"last_user": "^Dig"}, "text": "Dug.", **USED},
        *[{"match": {"last_user": "task-notification"}, "text": "Told.", **USED}] * 4,
        maxTokens=256,
    )
    models = json.loads((world.agent_dir / "models.json").read_text())
    [known] = models["providers"]["mock"]["models"]
    models["providers"]["mock"]["models"] = [known, {**known, "id": "mock-2"}]
    (world.agent_dir / "models.json").write_text(json.dumps(models))


async def work(world, tmp_path, *agents):
    """What the provider has billed when these have ended."""
    wish = Request(approve=True, session=SessionWish("named", str(tmp_path / "main.jsonl")))
    tasks = {"lead": "Lead. " * 100, "digger": "Dig well. " * 300}
    async with world.open_face(request=wish) as face:
        handles = [await face.spawn(agent, tasks[agent]) for agent in agents]
        await asyncio.gather(*(handle.wait() for handle in handles))
    [(limit, held)] = world.ask("SELECT tokens, held_tokens FROM retinue.leases WHERE tokens > 0")
    assert (limit, held) == (BUDGET, 0)
    return len(world.server.requests) * COST


@pytest.mark.sample(1)
@pytest.mark.parametrize("digger", ["runner: process", "runner: inprocess\nmodel: mock/mock-2", "model: mock/mock-2"])
async def test_budget_holds_below_workers(world, plain, tmp_path, digger):
    play(world, "runner: cluster", digger, budget={"tokens": BUDGET})
    world.start_worker("--approve", **plain())
    assert BUDGET / 2 < await work(world, tmp_path, "lead", "lead") <= BUDGET


@pytest.mark.sample(1)
@pytest.mark.parametrize("lead", ["runner: process", "runner: inprocess", "runner: inprocess\nmodel: mock/mock-2"])
async def test_budget_holds_beside_workers(world, tmp_path, lead):
    play(world, lead, "runner: cluster", budget={"tokens": BUDGET}, runner="inprocess")
    world.start_worker("--approve")
    assert BUDGET / 2 < await work(world, tmp_path, "digger", "digger", "lead", "lead") <= BUDGET


async def test_limit_of_agent_holds_beside_workers(world, tmp_path):
    play(world, f"runner: inprocess\nmax_tokens_total: {BUDGET}", "runner: cluster", runner="inprocess")
    world.start_worker("--approve")
    assert BUDGET / 2 < await work(world, tmp_path, "lead") <= BUDGET
