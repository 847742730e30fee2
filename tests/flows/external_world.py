"""A crew whose runs work in processes of their own, with a program of the test's behind the runner `pi`."""

import json
from pathlib import Path

from retinue import Request, Retinue, SessionWish
from tests.fake_child import FakeChild

LOOKER = "---\nname: looker\ndescription: d\ntools: read, grep\n---\n\nLook around.\n"


class ExternalWorld:
    """A home, a folder to work in and a fake child."""

    def __init__(self, root: Path, agent_dir: Path) -> None:
        self.agent_dir = agent_dir
        self.work = root / "work"
        self.work.mkdir()
        self.child = FakeChild(root / "bin")
        self.configure(runner="pi", piCommand=str(self.child.path))
        self.write_agent(LOOKER)
        self.add_models(mock="none")
        self.model = "mock/m-1"

    def configure(self, **settings) -> None:
        (self.agent_dir / "subagents.json").write_text(json.dumps(settings))

    def add_models(self, **keys: str) -> None:
        """Providers where nobody answers, with their keys."""
        place = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions"}
        known = {name: {**place, "apiKey": key, "models": [{"id": f"{name[0]}-1"}]} for name, key in keys.items()}
        (self.agent_dir / "models.json").write_text(json.dumps({"providers": known}))

    def speak(self, *replies: str) -> None:
        """Let the main model be a script; a pi cannot ask it, so the agent's file names another one."""
        script = self.work.parent / "script.json"
        script.write_text(json.dumps({"replies": [{"text": text} for text in replies]}))
        self.model = f"scripted/{script}"
        self.write_agent(LOOKER.replace("tools:", "model: far/away\ntools:"))

    def write_agent(self, text: str, name: str = "looker.md") -> None:
        folder = self.agent_dir / "agents"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    def open(self, *, session: str = "exact", **options) -> Retinue:
        request = Request(session=SessionWish(session, "my-session"))
        return Retinue(self.work, model=self.model, request=request, **options)

    async def run(self, task: str = "Where is it?", agent: str = "looker", **options):
        """One run from its spawn to its outcome."""
        async with self.open() as crew:
            handle = await crew.spawn(agent, task, **{"surface": "subagent", **options})
            return await handle.wait()


def find_flag(start: dict, name: str) -> str | None:
    argv = start["argv"]
    return argv[argv.index(name) + 1] if name in argv else None
