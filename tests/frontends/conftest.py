import json
from pathlib import Path

import pytest

from retinue.testing.process import fresh_home, run_cli


@pytest.fixture
def place(tmp_path):
    """A home, a folder to work in, and the command run there with a script for a model."""
    return Place(tmp_path)


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory):
    """The same for all tests of a file that do not mind each other."""
    return Place(tmp_path_factory.mktemp("place"))


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = fresh_home(root)
        self.agent_dir = self.home / ".pi" / "agent"
        self.work = root / "work"
        self.work.mkdir()

    def script(self, *replies):
        path = self.root / "script.json"
        path.write_text(json.dumps({"replies": list(replies)}))
        return f"scripted/{path}"

    def run(self, *args, stdin=None, env=None, replies=None, timeout_s=30):
        model = ["--model", self.script(*replies)] if replies is not None else []
        return run_cli([*model, *args], self.work, env, stdin, home=self.home, timeout_s=timeout_s)

    def sessions(self):
        return sorted(self.agent_dir.glob("sessions/*/*.jsonl"))

    def entries(self, index=-1):
        return [json.loads(line) for line in self.sessions()[index].read_text().splitlines()]
