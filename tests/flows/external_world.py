"""A crew whose runs work in processes of their own, with a program of the test's behind the runner `pi`."""

import json
from pathlib import Path

from retinue import Request, Retinue, SessionWish
from retinue.testing.child import FakeChild

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
        (root / "script.json").write_text(json.dumps({"replies": [{"text": "Main."}]}))
        self.model = f"scripted/{root / 'script.json'}"

    def configure(self, **settings) -> None:
        (self.agent_dir / "subagents.json").write_text(json.dumps(settings))

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
