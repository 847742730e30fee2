"""A Retinue whose main agent has the `subagent` tool; every agent plays one script, each told by its last words."""

import json
from pathlib import Path

from retinue import Request, Retinue
from retinue.core.model import ModelInfo
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.testing import EventCollector

WRITER = "---\nname: writer\ndescription: d\ntools: read, write, bash\n---\n\nWrite it.\n"
QUICK = '{"retry": {"enabled": false}}'
"""Settings of a program whose runs do not try again by themselves."""


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def ask(name, **arguments):
    return [{"name": name, "arguments": arguments}]


def finalize(**arguments):
    return {"calls": ask("subagent_finalize", **arguments)}


class World:
    def __init__(self, folder: Path, home: Path) -> None:
        self.root = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.home = home
        self.agent_dir = home / ".pi" / "agent"
        self.agent_dir.mkdir(parents=True, exist_ok=True)
        self.events = EventCollector()
        self.set(surfaces=["subagent"])
        (self.agent_dir / "settings.json").write_text(QUICK)

    def set(self, **settings):
        """What subagents.json says."""
        (self.agent_dir / "subagents.json").write_text(json.dumps(settings))

    def add(self, text=WRITER, folder="agents"):
        """An agent of the user's."""
        path = self.agent_dir / folder
        path.mkdir(exist_ok=True)
        name = text.split("name: ")[1].split("\n")[0]
        (path / f"{name}.md").write_text(text)

    def open(self, *replies, environment=None, cwd=None, model=None, **request):
        path = self.root / "script.json"
        path.write_text(json.dumps({"replies": replies}))
        known = {"HOME": str(self.home), "PI_CODING_AGENT_DIR": str(self.agent_dir), **(environment or {})}
        return Retinue(
            cwd or self.work,
            model=model or f"scripted/{path}",
            request=Request(**request),
            environment=known,
            say=self.notes.append,
        )

    @property
    def notes(self):
        return self.__dict__.setdefault("_notes", [])

    async def call(self, agent, task, *replies, write=False, session_id=None, **options):
        """The result of one call, as `retinue run --json` prints it."""
        async with self.open(*replies, **options) as crew:
            return await crew.call_subagent(agent, task, write=write, session_id=session_id)

    async def ask(self, agent, task, *replies, **arguments):
        """The message with the tool's result that the main agent gets."""
        call = ask("subagent", agent=agent, task=task, **arguments)
        async with self.open(to("^go", calls=call), to("^go", text="thanks"), *replies) as crew:
            crew.listen(self.events)
            await crew.prompt("go")
        return next(event.result for event in self.events.events if type(event).__name__ == "ToolFinished")


class Flaky:
    """A model whose first reply fails with what may pass."""

    info = ModelInfo("scripted", "flaky", "scripted", "Flaky")

    def __init__(self, *replies):
        fails = [{"error": {"kind": "overloaded", "message": "the server is overloaded"}}]
        self._scripts = [fails, replies]

    async def reply(self, request, draft):
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        return await ScriptedModel(parse_script(list(script)), self.info).reply(request, draft)


def read_messages(path):
    entries = map(json.loads, Path(path).read_text().splitlines())
    return [entry["message"] for entry in entries if entry["type"] == "message"]
