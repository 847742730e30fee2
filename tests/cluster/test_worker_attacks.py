"""A run on a worker that looks for what is the worker's, its neighbours' and its user's."""

import asyncio
import json
import os
import shutil
from codecs import encode
from pathlib import Path

import pytest

from bench.cluster_world import start_program
from tests.farm import FOLDERS
from tests.flows.sandbox_world import need_status

pytestmark = pytest.mark.timeout(120)
CANARIES = ("neighbour", "cache", "session", "password", "pgpass", "settings", "auth", "log")
READING = (
    "cat $(cat {shared}/place)/mine.txt {worker}/workspaces/runs/*/tree/mine.txt",
    "cat {worker}/workspaces/cache/other/git/objects/x {worker}/runs/*/sessions/*",
    "env; cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ | tr '\\0' '\\n' | grep -a canary",
    "cat ~/.pgpass {agent}/subagents.json {agent}/auth.json {agent}/models.json {log}",
    "mkdir -p sub; ln -s {worker} sub/link; cat sub/link/workspaces/cache/other/git/objects/x",
)
WRITING = (
    *("$(cat {shared}/place)/theirs", "{worker}/workspaces/cache/other/git/objects/x", "{worker}/workspaces/runs/new"),
    *("../git/config", "../git/HEAD", "../git/objects/x", "../index", "../lock", "../new"),
    *("{agent}/auth.json", "{agent}/agents/evil.md", "{agent}/retinue/evil", ".git/hooks/pre-commit", ".git/config"),
)
FILE_TOOLS = (
    *(("read", {"path": "../git/config"}), ("ls", {"path": "../.."}), ("read", {"path": "/proc/self/environ"})),
    *(("read", {"path": "{worker}/workspaces/cache/other/git/objects/x"}), ("read", {"path": "{agent}/auth.json"})),
    *(("grep", {"pattern": "canary", "path": "{worker}"}), ("find", {"pattern": "*", "path": "{worker}"})),
    *(("write", {"path": path, "content": "x"}) for path in ("../git/config", "../new", "{agent}/evil")),
)
TURN = "tr a-z n-za-m"
HONEST = "echo mine >kept && git add kept && git commit -qm mine && git log --oneline && cat README.md"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


class Prey:
    """A worker with something to steal, and where it is."""

    def __init__(self, world, folder: Path, **variables: str) -> None:
        self.world, self.folder = world, folder
        self.variables = variables
        # With an environment and words of its own, in which there is something to be found.
        world.start = start_program
        self.places = {"shared": world.shared, "worker": folder, "agent": world.agent_dir}
        self.places["log"] = world._root / "worker0.log"
        objects = folder / "workspaces" / "cache" / "other" / "git" / "objects"
        objects.mkdir(parents=True)
        (objects / "x").write_text("canary-cache")
        (objects.parents[1] / "use").touch()
        (world.agent_dir / "agents").mkdir()
        (world.agent_dir / "retinue").mkdir(exist_ok=True)
        (Path.home() / ".pgpass").write_text("canary-pgpass")
        (Path.home() / ".pgpass").chmod(0o600)
        (world.agent_dir / "auth.json").write_text('{"other": {"type": "api_key", "key": "canary-auth"}}')

    def start(self) -> None:
        """Have two runs on it: one that waits, and one that attacks."""
        writing = "mkdir -p .git/hooks; " + "; ".join(f"(echo x >>{each}) && echo wrote" for each in WRITING)
        # Turned around, so that nothing is taken out on the way because its value is known.
        commands = (HONEST, *(f"({each}) | {TURN}" for each in READING), writing)
        told = [call("bash", command=self._name(each)) for each in commands]
        told += [call(name, **{key: self._name(value) for key, value in given.items()}) for name, given in FILE_TOOLS]
        wait = f"pwd >{self.world.shared}/place; echo canary-neighbour >mine.txt; echo canary-session"
        until = f"until [ -e {self.world.shared}/gate ]; do sleep 0.1; done"
        self.world.play(
            *(to("^Wait", calls=[call("bash", command=f"{wait}; {until}")]), to("^Wait", text="Done.")),
            *(to("^Attack", calls=told), to("^Attack", text="Done.")),
        )
        self.world.change({"cluster": {"database": "postgresql://a:canary-settings@127.0.0.1/x"}})
        address = self.world.database.replace("@", ":canary-password@", 1)
        self.world.start_worker("--database", address, RETINUE_DATABASE=address, **self.variables)
        with self.places["log"].open("a") as log:
            log.write("canary-log\n")

    async def attack(self) -> list[str]:
        """What the attacker is told for its calls."""
        async with self.world.open_face() as face:
            waiting = await face.spawn("general-purpose", "Wait.")
            await asyncio.to_thread(self.world.wait_until, (self.world.shared / "place").exists, "the neighbour works")
            outcome = await (await face.spawn("general-purpose", "Attack.")).wait()
            (self.world.shared / "gate").touch()
            await waiting.wait()
        entries = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
        messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        return [each["content"][0]["text"] for each in messages if each["role"] == "toolResult"]

    def _name(self, text: str) -> str:
        for name, path in self.places.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


@pytest.fixture(params=["home", pytest.param("elsewhere", marks=pytest.mark.slow)])
def prey(request, world):
    need_status("bwrap")
    if request.param == "home":
        # The folder is where it is by default, and all around it may be written.
        world.sandbox["writable"] = ["~", str(world.shared)]
        yield Prey(world, world.agent_dir / "retinue" / "worker", RETINUE_WORKER_DIR="")
        return
    folder = FOLDERS / f"prey-{os.getpid()}"
    yield Prey(world, folder, RETINUE_WORKER_DIR=str(folder))
    shutil.rmtree(folder)


def judge(said):
    """What was found, and how often something was written."""
    told = "\n".join(said)
    found = [
        name for name in CANARIES if any(each in told for each in (f"canary-{name}", encode(f"canary-{name}", "rot13")))
    ]
    return found, told.count("wrote\n")


@pytest.mark.attack("C1", "C8", "H1")
async def test_run_finds_nothing_of_the_worker(prey):
    prey.start()
    honest, *said = await prey.attack()
    assert judge(said) == ([], 0), "\n\n".join(said)
    assert ("mine" in honest, "# A project" in honest) == (True, True), honest


@pytest.mark.unconfined("shows that the attacks are some")
async def test_attacks_are_live_without_boundary(prey):
    prey.start()
    said = await prey.attack()
    # Commands are among processes of their own even so, where the machine can do that.
    found = [name for name in CANARIES if name != "password"]
    assert (set(found) - set(judge(said)[0]), judge(said)[1]) == (set(), len(WRITING)), "\n\n".join(said)
