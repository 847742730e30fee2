"""A main agent that dispatches, in a folder and a home of their own; every agent plays one script."""

import json
import sys
from pathlib import Path

from retinue import Request, Retinue, SessionWish
from retinue.core.events import Warned

PROFILE = "---\nname: {name}\ndescription: Does {name}\n{fields}---\nYou are {name}.\n"


def to(words: str, **reply) -> dict:
    return {"match": {"last_user": words}, **reply}


def call(name: str, **arguments) -> dict:
    return {"name": name, "arguments": arguments}


def dispatch(agent: str = "helper", prompt: str = "look around") -> dict:
    return call("dispatch_agent", agent=agent, prompt=prompt)


class World:
    """What a user has on disk, and a run of the main agent with it."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.agent_dir = home / ".pi" / "agent"
        self.work = folder / "work"
        self.work.mkdir()
        self.said: list[str] = []
        self.warned: list[str] = []
        self.opened = 0
        self.settings(surfaces=["dispatch"])

    def settings(self, **values) -> None:
        self.agent_dir.mkdir(parents=True, exist_ok=True)
        (self.agent_dir / "subagents.json").write_text(json.dumps({"surfaces": ["dispatch"], **values}))

    def put(self, path: str, text: str, *, in_project: bool = False) -> Path:
        file = (self.work if in_project else self.home) / ".codingcode" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def agent(self, name: str = "helper", fields: str = "", *, in_project: bool = False) -> Path:
        text = PROFILE.format(name=name, fields=fields)
        return self.put(f"agents/{name}.md", text, in_project=in_project)

    def hook(
        self, name: str, point: str, answer=None, *, kind: str = "decision", code: str = "", keeps: bool = True
    ) -> dict:
        """An entry of hooks.yaml whose command keeps its payloads where a project's hook may, then answers."""
        script = self.folder / f"{name}.py"
        seen = self.work / f".{name}.jsonl"
        lines = (
            "import json, sys",
            "payload = json.load(sys.stdin)",
            f"open({str(seen)!r}, 'a').write(json.dumps(payload) + chr(10))" if keeps else "",
            code or "",
            "" if answer is None else f"print({json.dumps(answer)!r})",
        )
        script.write_text("\n".join(lines))
        return {
            "name": name,
            "point": point,
            "type": kind,
            "command": sys.executable,
            "args": [str(script)],
            "enabled": True,
        }

    def hooks(self, *entries: dict, in_project: bool = False) -> None:
        self.put("hooks.yaml", json.dumps({"hooks": list(entries)}), in_project=in_project)

    def seen(self, name: str) -> list[dict]:
        path = self.work / f".{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def script(self, *replies: dict) -> str:
        path = self.folder / "script.json"
        path.write_text(json.dumps({"replies": list(replies)}))
        return f"scripted/{path}"

    def open(self, *replies: dict, **options) -> Retinue:
        self.opened += 1
        wish = SessionWish("exact", "main-session" if self.opened == 1 else f"main-session-{self.opened}")
        request = Request(session=wish, approve=options.pop("approve", True), **options)
        return Retinue(self.work, model=self.script(*replies), request=request, say=self.said.append)

    async def run(self, *replies: dict, **options) -> list[str]:
        """The texts of the results that the main agent's calls got."""
        async with self.open(*replies, **options) as crew:
            crew.listen(lambda event: self.warned.append(event.text) if isinstance(event, Warned) else None)
            self.outcome = await crew.prompt("begin")
            self.entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
        return self.results(self.entries)

    async def dispatch(self, *replies: dict, agent: str = "helper", prompt: str = "look around") -> str:
        """The result of one call, the child playing the replies."""
        begin = (to("^begin", calls=[dispatch(agent, prompt)]), to("^begin", text="done"))
        (text,) = await self.run(*begin, *replies)
        return text

    @staticmethod
    def results(entries: list[dict]) -> list[str]:
        found = [entry["message"] for entry in entries if entry.get("message", {}).get("role") == "toolResult"]
        return [message["content"][0]["text"] for message in found]

    def children(self) -> list[Path]:
        return sorted(self.agent_dir.glob("sessions/*/*/*/session.jsonl"))

    def child(self) -> list[dict]:
        (path,) = self.children()
        return self.read(path)

    @staticmethod
    def read(path: Path) -> list[dict]:
        return [json.loads(line) for line in path.read_text().splitlines()]
