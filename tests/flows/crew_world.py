"""A Retinue with a script for a model in a real repository: shared by the tests of the crew."""

import json
import subprocess
from pathlib import Path

from retinue import Request, SessionWish
from retinue.testing import make_repo

SESSION = Request(session=SessionWish("exact", "my-session"))
COPIER = "---\nname: copier\ndescription: d\ntools: write, read, bash\nisolation: worktree\n---\n\nWork.\n"


def script(folder: Path, *replies: dict) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": replies}))
    return f"scripted/{path}"


def to(words: str, **reply) -> dict:
    return {"match": {"last_user": words}, **reply}


def call(name: str, **arguments) -> dict:
    return {"name": name, "arguments": arguments}


def write(path: str, text: str = "new\n") -> list[dict]:
    return [call("write", path=path, content=text)]


def git(cwd: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """A checkout beside a home; nothing else knows of either."""
    return make_repo(folder / "repo", {"a.txt": "one\n"})
