import time

import pytest

from retinue import Request, Retinue, SessionWish, Status
from retinue.core.events import MessageFinished
from retinue.core.messages import AssistantMessage, CustomMessage
from retinue.testing import open_cli
from retinue.testing.process import fresh_home
from tests.flows.crew_world import call, repository, script, to

SESSION = Request(session=SessionWish("exact", "my-session"))
ASK = call("Agent", subagent_type="Explore", prompt="look", description="a look")
READ = [call("read", path="a.txt"), call("grep", pattern="one")]
REPLIES = [
    *(to("^begin", calls=[ASK]), to("^begin", text="started")),
    *(to("^look", calls=READ), to("^look", calls=READ[:1]), to("^look", text="late", delay_ms=60_000)),
    to("^next|notification", text="Next"),
]


@pytest.fixture
def killed(tmp_path):
    """A session whose process was killed when a run of it had used three tools, as a Retinue to be opened."""
    home, work, model = fresh_home(tmp_path / "home"), repository(tmp_path), script(tmp_path, *REPLIES)
    agent_dir = home / ".pi" / "agent"
    with open_cli(["--model", model, "--session-id", "my-session", "-p", "begin"], work, home=home) as process:
        deadline_s = time.monotonic() + 20
        while "".join(path.read_text() for path in agent_dir.glob("sessions/*/*/*/*.jsonl")).count("toolResult") < 3:
            assert time.monotonic() < deadline_s and process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
    return Retinue(work, model=model, request=SESSION, environment={"PI_CODING_AGENT_DIR": str(agent_dir)})


async def test_killed_run_keeps_its_count(killed):
    async with killed as crew:
        (handle,) = await crew.runs()
        run, outcome = handle.run, handle.run.outcome
    assert (run.status, run.tool_uses, run.turns, outcome.tool_calls) == (Status.INTERRUPTED, 3, 2, 3)
    assert run.usage.total_tokens == outcome.usage.total_tokens > 0


async def test_killed_run_is_counted_once(killed):
    async with killed as crew:
        usage = (await crew.runs())[0].run.usage
    async with killed as crew:
        (handle,) = await crew.runs()
        again = await crew.resume(handle.id, "next")
        outcome = await again.wait()
    assert (handle.run.usage, handle.run.tool_uses, again.run.tool_uses) == (usage, 3, 3)
    assert again.run.usage.total_tokens == usage.total_tokens + outcome.usage.total_tokens


async def test_report_comes_with_the_first_prompt(killed):
    said = list[str]()
    async with killed as crew:
        crew.listen(lambda event: said.append(event.message) if isinstance(event, MessageFinished) else None)
        await crew.prompt("next")
    kinds = [type(message) for message in said if isinstance(message, CustomMessage | AssistantMessage)]
    (report,) = (message for message in said if isinstance(message, CustomMessage))
    assert (kinds, "<tool_uses>3</tool_uses>" in report.content) == ([CustomMessage, AssistantMessage], True)
