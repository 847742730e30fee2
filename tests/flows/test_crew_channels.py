import json
from pathlib import Path

import pytest

from retinue import Request, Retinue
from retinue.testing import EventCollector, make_repo
from tests.flows.crew_world import call, script, to

ASKER = """
import json

heard = []

def register(api):
    for name in ("created", "started", "completed", "failed", "ready", "settings_loaded"):
        api.on(f"subagents:{name}", lambda data, name=name: heard.append((name, data)))

    @api.tool(name="ask", description="Asks.", effect="read", parameters={
        "properties": {"method": {"type": "string"}, "request": {"type": "object"}}, "required": ["method"],
    })
    async def ask(method, request=None):
        try:
            return json.dumps(await api.events.request(f"subagents:rpc:{method}", request))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    @api.tool(name="recall", description="Says what was heard.", effect="read")
    def recall():
        return json.dumps(heard)
"""
HEARER = """
def register(api):
    seen = []

    @api.on("ToolStarted")
    def note(event):
        seen.append(f"{event.run_id}:{event.name}")

    @api.on("RunStarted")
    def begin(event):
        seen.append(event.run_id)

    @api.command("seen")
    def show(text):
        return " ".join(seen)
"""

MARK = "from pathlib import Path\n\n\ndef register(api):\n    Path('{}').touch()\n"


def install(agent_dir, **sources):
    (agent_dir / "extensions").mkdir()
    for name, text in sources.items():
        (agent_dir / "extensions" / f"{name}.py").write_text(text)


async def answers(crew, prompt):
    """What the tools have answered to the main agent."""
    seen = EventCollector()
    stop = crew.listen(seen)
    await crew.prompt(prompt)
    stop()
    return [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]


def ask(words, method, **request):
    return [to(words, calls=[call("ask", method=method, request=request)]), to(words, text="Asked")]


@pytest.mark.spec("fleet:B75")
async def test_extension_starts_an_agent(tmp_path, agent_dir):
    install(agent_dir, asker=ASKER)
    model = script(
        tmp_path,
        *ask("^ping", "ping"),
        *ask("^begin", "spawn", type="Explore", prompt="look", options={"description": "a look"}),
        *ask("^stop", "stop", agentId="nobody"),
        to("^look", text="Seen"),
    )
    async with Retinue(tmp_path, model=model, request=Request(tools=["ask"])) as crew:
        assert await answers(crew, "ping") == ['{"version": 2}']
        [told] = await answers(crew, "begin")
        [run] = await crew.runs()
        assert (json.loads(told), (await run.wait(5)).text) == ({"id": run.id}, "Seen")
        assert await answers(crew, "stop") == ["RetinueError: Agent not found"]


async def test_extension_hears_of_the_crew(tmp_path, agent_dir):
    install(agent_dir, asker=ASKER)
    model = script(
        tmp_path, to("^recall", calls=[call("recall")]), to("^recall", text="Done"), to("^look", text="Seen")
    )
    async with Retinue(tmp_path, model=model) as crew:
        run = await crew.spawn("Explore", "look", description="a look")
        await run.wait(5)
        [told] = await answers(crew, "recall")
    heard = dict(json.loads(told))
    assert list(heard) == ["settings_loaded", "ready", "created", "started", "completed"]
    assert (heard["settings_loaded"]["settings"]["maxConcurrent"], heard["ready"]) == (4, {})
    facts = {name: heard["completed"][name] for name in ("id", "type", "description", "status", "result", "depth")}
    assert facts == {
        "id": run.id, "type": "Explore", "description": "a look", "status": "completed", "result": "Seen", "depth": 1
    }  # fmt: skip


@pytest.mark.spec("fleet:B76")
@pytest.mark.parametrize("more", ["", "runner: process\n"])
async def test_other_folder_brings_no_configuration(tmp_path, agent_dir, crew_runner, more):
    install(agent_dir, asker=ASKER)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, text in ((here, "Mine."), (there, "Foreign.")):
        looker = f"---\ndescription: d\ntools: ls\n{more}---\n\n{text}\n"
        trap = MARK.format(folder / "ran")
        make_repo(folder, {".pi/agents/looker.md": looker, ".pi/extensions/trap.py": trap})
    options = {"cwd": str(there)}
    model = script(
        tmp_path, *ask("^begin", "spawn", type="looker", prompt="look", options=options), to("^look", text="x")
    )
    async with Retinue(here, model=model, request=Request(tools=["ask"], approve=True)) as crew:
        await answers(crew, "begin")
        [run] = await crew.runs()
        session = (await run.wait(15)).session_file
    prompt = Path(session).read_text()
    place = f"in a copy of {there}" if crew_runner == "cluster" and not more else f"Working directory: {there}"
    assert ("Mine." in prompt, "Foreign." in prompt, place in prompt) == (True, False, True)
    assert ((here / "ran").exists(), (there / "ran").exists()) == (True, False)


@pytest.mark.parametrize(("extensions", "inside"), [("true", True), ("false", False)])
async def test_handlers_hear_inside_children(tmp_path, agent_dir, extensions, inside):
    install(agent_dir, hearer=HEARER)
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "lister.md").write_text(
        f"---\ndescription: d\ntools: ls\nextensions: {extensions}\n---\n\nList.\n"
    )
    model = script(tmp_path, to("^list", calls=[call("ls")]), to("^list", text="Listed"))
    async with Retinue(tmp_path, model=model) as crew:
        run = await crew.spawn("lister", "list")
        await run.wait(5)
        assert (await crew.commands.run("seen")).split() == [run.id, *([f"{run.id}:ls"] if inside else [])]
