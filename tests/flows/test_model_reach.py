"""Which provider hears what a run is told, by the Python API: a choice counts, a wish stays at home."""

import json
from contextlib import AsyncExitStack

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.testing import MockServer
from tests.flows.crew_world import call, script, to

HAIKU = "claude-haiku-5-5"
AGENT = {"prompt": "look", "description": "d"}
LOOK = [
    to("^begin", calls=[call("Agent", subagent_type="general-purpose", model="haiku", **AGENT)]),
    to("^ask", calls=[call("Agent", subagent_type="Explore", model=f"anthropic/{HAIKU}", **AGENT)]),
    to("^list", calls=[call("list_models")]),
    to("look", text="found"),
    to(".", text="thanks"),
]


class Two:
    """Keys for two providers, and what each was asked for."""

    def __init__(self, tmp_path, anthropic, openai):
        self.tmp_path = tmp_path
        self.servers = {"anthropic": anthropic, "openai": openai}
        self.agent_dir = tmp_path / "home" / ".pi" / "agent"
        self.agent_dir.mkdir(parents=True)
        self.environment = {
            "HOME": str(tmp_path / "home"),
            "PI_CODING_AGENT_DIR": str(self.agent_dir),
            "RETINUE_NO_LOCAL": "1",
            "ANTHROPIC_API_KEY": "key-a",
            "ANTHROPIC_BASE_URL": anthropic.url,
            "OPENAI_API_KEY": "key-o",
            "OPENAI_BASE_URL": f"{openai.url}/v1",
        }

    def open(self, model, **options):
        wish = Request(session=SessionWish("exact", "my-session"))
        return Retinue(self.tmp_path, model=model, request=wish, environment=self.environment, **options)

    def asked(self):
        return {name: [each.json["model"] for each in server.requests] for name, server in self.servers.items()}


@pytest.fixture
async def two(tmp_path):
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(MockServer(LOOK)) for _ in range(2)]
        yield Two(tmp_path, *servers)


NOBODY = {"anthropic": [], "openai": []}


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        (None, NOBODY),
        ("haiku", NOBODY),
        (f"anthropic/{HAIKU}", {"anthropic": [HAIKU], "openai": []}),
        ("openai/gpt-99", {"anthropic": [], "openai": ["gpt-99"]}),
    ],
)
async def test_code_chooses_by_naming_a_provider(two, tmp_path, named, asked):
    async with two.open(script(tmp_path, *LOOK)) as crew:
        run = await crew.spawn("Explore", "look", model=named)
        assert (await run.wait(10)).text == "found"
    assert two.asked() == asked


async def test_resumed_run_follows_the_model_of_now(two, tmp_path):
    async with two.open("anthropic/claude-sonnet-5") as crew:
        run = await crew.spawn("Explore", "look")
        await run.wait(10)
    assert two.asked() == {"anthropic": [HAIKU], "openai": []}
    async with two.open(script(tmp_path, *LOOK)) as crew:
        again = await crew.resume(run.id, "look again")
        assert (await again.wait(10)).text == "found"
    assert two.asked() == {"anthropic": [HAIKU], "openai": []}


async def test_calls_of_an_earlier_session_follow_it_too(two, tmp_path):
    async with two.open("anthropic/claude-sonnet-5") as crew:
        await crew.prompt("begin", settle=True)
        (run,) = await crew.runs()
    assert two.asked()["anthropic"].count(HAIKU) == 1
    before = len(two.asked()["anthropic"])
    async with two.open(script(tmp_path, *LOOK)) as crew:
        again = await crew.resume(run.id, "look again")
        assert (await again.wait(10)).text == "found"
    assert len(two.asked()["anthropic"]) == before


async def test_wish_follows_a_change_of_the_main_model(two, tmp_path):
    async with two.open("openai/gpt-5.5") as crew:
        await (await crew.spawn("Explore", "look")).wait(10)
        crew.selection.select("anthropic", "claude-sonnet-5")
        await (await crew.spawn("Explore", "look")).wait(10)
    assert two.asked() == {"anthropic": [HAIKU], "openai": ["gpt-5.5"]}


async def test_scope_of_the_session_lists_models(two, tmp_path):
    async with two.open(script(tmp_path, *LOOK)) as crew:
        crew.selection.limit([f"anthropic/{HAIKU}"])
        await (await crew.spawn("Explore", "look")).wait(10)
        crew.selection.limit([])
        await (await crew.spawn("Explore", "look")).wait(10)
    assert two.asked() == {"anthropic": [HAIKU], "openai": []}


async def test_grandchild_stays_with_the_main_model(two, tmp_path):
    agents = two.agent_dir / "agents"
    agents.mkdir()
    text = "---\nname: boss\ndescription: d\nmodel: openai/gpt-5.5\nallowed_subagents: Explore\n---\n\nAsk.\n"
    (agents / "boss.md").write_text(text)
    async with two.open(script(tmp_path, *LOOK)) as crew:
        run = await crew.spawn("boss", "ask")
        await run.wait(10)
        for each in await crew.runs():
            await each.wait(10)
    assert two.asked()["anthropic"] == [] and set(two.asked()["openai"]) == {"gpt-5.5"}


async def test_list_has_what_may_be_named(two, tmp_path):
    (two.agent_dir / "settings.json").write_text(
        json.dumps({"enabledModels": ["openai/gpt-5.5", f"anthropic/{HAIKU}"]})
    )
    async with two.open("openai/gpt-5.5") as crew:
        await crew.prompt("list")
    text = json.dumps(two.servers["openai"].requests[-1].json)
    assert "openai/gpt-5" in text and f"anthropic/{HAIKU}" in text and "anthropic/claude-sonnet-5" not in text
