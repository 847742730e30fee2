import asyncio
import re

import pytest

from retinue import Retinue
from retinue.core.events import MessageFinished, ToolFinished
from retinue.core.messages import CustomMessage
from retinue.models.scripted import ScriptedModel, parse_script
from tests.flows.crew_world import call, script, to

SLOW_S = 0.6
"""Longer than a report is held back."""


def list_reports(crew) -> list[str]:
    """The texts of the reports that the main agent is told from now on."""
    told = list[str]()

    def hear(event):
        if isinstance(event, MessageFinished) and isinstance(event.message, CustomMessage):
            told.append(event.message.content)

    crew.listen(hear)
    return told


@pytest.mark.parametrize("wait_s", [0, SLOW_S])
async def test_result_that_was_read_is_not_announced(tmp_path, wait_s):
    model = script(tmp_path, to("^look", text="the report"), to("^next", text="Next"))
    async with Retinue(tmp_path, model=model) as crew:
        told = list_reports(crew)
        run = await crew.spawn("Explore", "look")
        async for _ in run.events():
            pass
        await asyncio.sleep(wait_s)
        assert (await run.wait()).text == "the report"
        await crew.prompt("next")
    assert told == []


async def test_result_that_nobody_read_is_announced(tmp_path):
    model = script(tmp_path, to("^look", text="the report"), to("^next|notification", text="Next"))
    async with Retinue(tmp_path, model=model) as crew:
        told = list_reports(crew)
        run = await crew.spawn("Explore", "look")
        async for _ in run.events():
            pass
        await asyncio.sleep(SLOW_S)
        await crew.prompt("next")
    assert len(told) == 1


async def test_group_report_leaves_out_what_was_read(tmp_path):
    replies = (to("^look at a", text="saw a"), to("^look at b", text="saw b"), to("^next|notification", text="Next"))
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        told = list_reports(crew)
        first, second = [await crew.spawn("Explore", f"look at {name}", join="group") for name in "ab"]
        for run in (first, second):
            async for _ in run.events():
                pass
        await asyncio.sleep(SLOW_S)
        await first.wait()
        await crew.prompt("next")
    (text,) = told
    assert (first.id in text, second.id in text, "saw b" in text) == (False, True, True)


class Asker:
    """A model that thinks for a while before it asks for the result of the run it has started."""

    info = ScriptedModel(parse_script([{"text": "x"}])).info

    async def reply(self, request, draft):
        found = re.search(r"Agent ID: (\w+)", "".join(map(str, request.messages)))
        ask = call("Agent", subagent_type="Explore", prompt="look", description="a look")
        get = call("get_subagent_result", agent_id=found[1] if found else "?")
        replies = (to("^begin", calls=[ask]), to("^begin", calls=[get], delay_ms=round(SLOW_S * 1000)))
        script = [*replies, to("^begin", text="done"), to("^look", text="the report"), {"text": "Thank you"}]
        return await ScriptedModel(parse_script(script)).reply(request, draft)


async def test_call_that_reads_late_acknowledges(tmp_path):
    results = list[str]()
    async with Retinue(tmp_path, model=Asker()) as crew:
        told = list_reports(crew)
        crew.listen(lambda event: results.append(str(event.result.content)) if type(event) is ToolFinished else None)
        outcome = await crew.prompt("begin", settle=True)
    assert (outcome.text, told, "the report" in results[1]) == ("done", [], True)
