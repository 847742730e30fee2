import pytest

from retinue import Request, Retinue
from retinue.core.errors import RetinueError, UsageError
from tests.flows.crew_world import call, script, to

ECHO = """
from retinue.core.model import ModelInfo, Reply


class Echo:
    info = ModelInfo({provider!r}, "loud", "own", "Loud", context_window=8000)

    async def reply(self, request, draft):
        draft.add(draft.open_text(), request.messages[-1].content[0].text.upper())
        return Reply(draft.finish("stop"))


def register(api):
    api.model(Echo())
"""
VERBS = """
def register(api):
    @api.command("greet", help="Greets.")
    def greet(text):
        return f"Hello {text}"

    @api.command("fall")
    async def fall(text):
        raise ValueError("no")

    api.renderer("score", lambda data: f"{data['points']} points")
    api.renderer("broken", lambda data: data.missing)
"""
SURFACE = """
from retinue.core.model import ToolSpec
from retinue.core.tool import ToolResult
from retinue.engine.request import RunRequest


class Delegate:
    spec = ToolSpec("delegate", "Starts a run and waits for it.", {"properties": {"task": {"type": "string"}}})
    effect = "delegate"

    def __init__(self, seat):
        self.seat = seat

    async def call(self, arguments, context):
        task = arguments["task"]
        request = RunRequest(agent="Explore", task=task, description=task, surface="fleet", is_background=False)
        run = self.seat.manager.spawn(request, self.seat.run_id)
        await self.seat.manager.wait(run.id)
        return ToolResult.of(run.text)


class Relay:
    name = "relay"

    def build_tools(self, seat):
        return [Delegate(seat)]


def register(api):
    api.surface(Relay())
"""


def install(agent_dir, **sources):
    (agent_dir / "extensions").mkdir()
    for name, text in sources.items():
        (agent_dir / "extensions" / f"{name}.py").write_text(text)


async def test_model_of_an_extension_answers(tmp_path, agent_dir):
    install(agent_dir, echo=ECHO.format(provider="acme"))
    async with Retinue(tmp_path, model="acme/loud") as crew:
        assert (crew.model.ref, (await crew.prompt("hi")).text) == ("acme/loud", "HI")
        assert (await (await crew.spawn("Explore", "look", model="loud")).wait(5)).text == "LOOK"


async def test_known_provider_is_not_taken_over(tmp_path, agent_dir):
    install(agent_dir, echo=ECHO.format(provider="offline"))
    said = []
    async with Retinue(tmp_path, model="offline/rules", say=said.append) as crew:
        assert crew.model.name == "Offline rules (no language model)"
    assert said == ["models of 'offline' are left out: a provider with this name exists already"]


async def test_caller_brings_models(tmp_path):
    scope: dict = {}
    exec(ECHO.format(provider="acme"), scope)
    async with Retinue(tmp_path, model="loud", models=[scope["Echo"]()]) as crew:
        assert (await crew.prompt("hi")).text == "HI"


async def test_commands_are_run_by_name(tmp_path, agent_dir):
    install(agent_dir, verbs=VERBS)
    async with Retinue(tmp_path, model=script(tmp_path)) as crew:
        assert [crew.commands.has(name) for name in ("greet", "gret")] == [True, False]
        assert await crew.commands.run("greet", "you there") == "Hello you there"
        with pytest.raises(RetinueError, match=r"/fall failed: ValueError: no \(extension 'verbs', .*verbs.py:9\)"):
            await crew.commands.run("fall")
        with pytest.raises(UsageError, match=r"there is no command /gret.*greet"):
            await crew.commands.run("gret")


async def test_hidden_command_is_told(tmp_path, agent_dir):
    install(agent_dir, a=VERBS, b=VERBS)
    said = []
    async with Retinue(tmp_path, model=script(tmp_path), say=said.append) as crew:
        assert await crew.commands.run("greet", "you") == "Hello you"
    assert said[0] == "extension 'b': its command /greet is hidden by that of 'a'"


async def test_renderers_are_asked_by_kind(tmp_path, agent_dir):
    install(agent_dir, verbs=VERBS)
    async with Retinue(tmp_path, model=script(tmp_path)) as crew:
        shown = {kind: renderer.render({"points": 3}) for kind, renderer in crew.renderers.items()}
    assert shown == {"score": "3 points", "broken": None}


@pytest.mark.parametrize("tools", [None, ["delegate"]])
async def test_surface_of_an_extension_is_offered(tmp_path, agent_dir, tools):
    install(agent_dir, relay=SURFACE)
    model = script(
        tmp_path,
        to("^go", calls=[call("delegate", task="look")]),
        to("^look", text="Seen"),
        to("^go", text="Told"),
    )
    async with Retinue(tmp_path, model=model, request=Request(tools=tools)) as crew:
        outcome = await crew.prompt("go")
        assert [run.status for run in await crew.runs()] == ["completed"]
    assert outcome.text == "Told"


async def test_broken_surface_is_left_out(tmp_path, agent_dir):
    install(agent_dir, relay=SURFACE.replace("return [Delegate(seat)]", "return 3"))
    said = []
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}), say=said.append) as crew:
        assert (await crew.prompt("hi")).text == "Hi"
    assert said == ["the surface 'relay' cannot be offered: build_tools returned no list"]
