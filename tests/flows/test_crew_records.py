import json
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.events import ToolProgress
from retinue.core.messages import TextContent
from tests.flows.crew_world import SESSION, call, repository, script, to


async def test_session_says_whose_it_is(tmp_path):
    repo = repository(tmp_path)
    async with Retinue(repo, model=script(tmp_path, to("^look", text="Seen")), request=SESSION) as crew:
        run = await crew.spawn("general-purpose", "look")
        outcome, above = await run.wait(15), crew.session_file
    header, info, *_ = map(json.loads, Path(outcome.session_file).read_text().splitlines())
    assert (header["cwd"], header["parentSession"]) == (str(repo.resolve()), str(above))
    assert (info["type"], info["name"]) == ("session_info", f"general-purpose#{run.id[:8]}")


@pytest.mark.parametrize("more", ["", "runner: process\n"])
async def test_output_is_seen_while_it_grows(tmp_path, agent_dir, more):
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "talker.md").write_text(f"---\ndescription: d\ntools: bash\n{more}---\n\nTalk.\n")
    replies = [to("^talk", calls=[call("bash", command="echo early; sleep 0.7; echo late")]), to("^talk", text="Done")]
    async with Retinue(repository(tmp_path), model=script(tmp_path, *replies)) as crew:
        run = await crew.spawn("talker", "talk")
        seen = [event.content async for event in run.events() if isinstance(event, ToolProgress)]
    assert [TextContent("early\n")] in seen
