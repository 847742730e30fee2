import asyncio

from retinue.core.events import Asked
from retinue.core.run import Reason, Status
from retinue.core.tool import Effect, ToolResult
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Limits
from retinue.engine.questions import PendingQuestions
from retinue.features.approvals.gate import ALLOW, ApprovalFeature, GatePorts, RunRules
from retinue.features.hooks.feature import HooksFeature
from retinue.features.hooks.hook_table import HookTable
from tests.flows.test_run import Tool, start


class Slow:
    """An observer that does not come to an end."""

    name, point, kind, priority, scope, is_own = "slow", "agent.turn.end", "observer", 0, "global", True

    async def ask(self, payload):
        await asyncio.sleep(60)


async def work(arguments):
    return ToolResult.of("done")


async def test_waiting_for_a_person_is_not_idle():
    tool = Tool("change", work)
    tool.effect = Effect.WRITE
    desk = PendingQuestions(lambda event: waiting.append(event))
    waiting = []
    replies = [{"calls": [{"name": "change", "arguments": {}}]}, {"text": "changed"}]
    hook_table = HookTable([], print)
    gate = ApprovalFeature(RunRules(), GatePorts(desk, "", False, hook_table.decide, hook_table.tell))
    run, _ = start(replies, [tool], features=[gate], limits=Limits(idle_s=0.2))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        with desk.attend():
            prompt = group.create_task(run.prompt("Begin."))
            await asyncio.sleep(0.6)
            (asked,) = [event for event in waiting if isinstance(event, Asked)]
            assert desk.answer(asked.question.id, ALLOW)
            outcome = await prompt
    assert (outcome.status, outcome.reason, outcome.text) == (Status.COMPLETED, Reason.DONE, "changed")


async def test_slow_observer_spoils_no_outcome():
    hook_table = HookTable([Slow()], str)
    run, _ = start([{"text": "fine"}], features=[HooksFeature(hook_table, SystemClock())], limits=Limits(cleanup_s=0.5))
    outcome = await run.prompt("Begin.")
    assert (outcome.status, outcome.text, outcome.error) == (Status.COMPLETED, "fine", "")
