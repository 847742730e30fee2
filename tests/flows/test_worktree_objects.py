"""A run in a copy writes objects and refs of its own; the repository gets whole, checked commits, and nothing else."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.sandbox.probe import Machine, Probe
from retinue.testing import make_repo
from tests.flows.sandbox_world import BACKENDS, need_status
from tests.flows.worktree_world import git

AGENT = "---\nname: writer\ndescription: d\ntools: read, bash, write\nisolation: worktree\n---\n\nDo it.\n"
IDENTITY = "-c user.name=a -c user.email=a@b"
COMMIT = f"echo x >new; git add new; git {IDENTITY} commit -qm inside"
SPOIL = {
    "overwrite": "for f in M/objects/??/*; do chmod u+w $f; echo junk >$f; done",
    "replace": "for f in M/objects/??/*; do echo junk >n; mv -f n $f; done",
    "truncate": "for f in M/objects/??/*; do chmod u+w $f; truncate -s 0 $f; done",
    "delete": "rm -rf M/objects/??; rm -f M/objects/pack/*",
    "link": "echo junk >j; for f in M/objects/??/*; do ln -f j $f; ln -sfn $PWD/j $f; done",
    "add": "mkdir -p M/objects/00 M/objects/info; echo x >M/objects/00/1; echo $PWD >M/objects/info/alternates",
    "refs": "echo 0 >M/refs/heads/main; echo 0 >M/refs/heads/pi-agent-x; rm -rf M/refs; echo 0 >M/packed-refs",
    "branches": "git branch -f main HEAD; git push -q . HEAD:refs/heads/main; git update-ref -d refs/heads/other",
    "steering": "echo x >M/hooks/pre-commit; echo x >>M/config; echo x >M/info/grafts; echo x >M/shallow; rm -r M/logs",
    "notes": "for d in M/worktrees/*; do echo 0 >$d/HEAD; echo / >$d/commondir; rm -rf $d; done",
    "gc": f"{COMMIT}; git gc -q --prune=now; git prune --expire=now; git repack -adq; unset GIT_DIR; git -C M gc -q",
    "variables": f"for v in $(env | sed -n 's/^\\(GIT_[A-Z_]*\\)=.*/\\1/p'); do unset $v; done; {COMMIT}",
    "directory": f"export GIT_OBJECT_DIRECTORY=M/objects; {COMMIT}",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    repo = make_repo(tmp_path / "work", {"a.txt": "one\n"})
    git(repo, "branch", "other")
    git(repo, "branch", "pi-agent-x")
    return repo


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    need_status(request.param)
    machine = Machine(Probe(backends=(request.param,)))
    monkeypatch.setattr("retinue.features.sandbox.open_machine", lambda: machine)
    return str(request.param)


def digest(repo: Path) -> dict[str, bytes]:
    """What of a repository is nobody's but the user's."""
    found = [path for path in (repo / ".git").rglob("*") if path.is_file() or path.is_symlink()]
    return {path.relative_to(repo).as_posix(): path.read_bytes() for path in found}


def check(repo: Path) -> str:
    done = subprocess.run(["git", "fsck", "--full", "--strict"], cwd=repo, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


async def run_agent(repo: Path, agent_dir: Path, command: str) -> tuple[str, str]:
    """The branch that a run in a copy leaves, and what its command printed."""
    (agent_dir / "agents").mkdir(parents=True, exist_ok=True)
    (agent_dir / "agents" / "writer.md").write_text(AGENT)
    script = agent_dir / "script.json"
    calls = [{"name": "bash", "arguments": {"command": command}}]
    script.write_text(json.dumps({"replies": [{"calls": calls}, {"text": "done"}]}))
    async with Retinue(repo, model=f"scripted/{script}") as crew:
        outcome = await (await crew.spawn("writer", "go")).wait(50)
    assert outcome.text == "done", outcome
    entries = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    said = next(message["content"][0]["text"] for message in messages if message["role"] == "toolResult")
    return outcome.branch, said


@pytest.mark.sample(9)
@pytest.mark.attack("I10")
@pytest.mark.parametrize("how", SPOIL)
async def test_copy_cannot_spoil_repository(how: str, backend: str, work: Path, agent_dir: Path) -> None:
    before = digest(work)
    command = SPOIL[how].replace("M/", f"{work}/.git/").replace("-C M", f"-C {work}")
    branch, said = await run_agent(work, agent_dir, command)
    after = digest(work)
    changed = [name for name, data in before.items() if after.get(name) != data]
    ours = (f"/{branch}", "/objects/", "/refs/retinue/checkpoints/")
    new = [name for name in after if name not in before and not any(part in f"/{name}" for part in ours)]
    assert (changed, [*new, *check(work).splitlines()]) == ([], []), said


@pytest.mark.attack("I10")
async def test_commits_of_copy_arrive_whole(backend: str, work: Path, agent_dir: Path) -> None:
    command = (
        f"{COMMIT} && git log --oneline main -1 && git gc -q && git checkout -qb side && echo left >more && echo fine"
    )
    branch, said = await run_agent(work, agent_dir, command)
    assert said.endswith("fine\n"), said
    shown = [git(work, "show", f"{branch}:{name}") for name in ("new", "more")]
    assert (shown, git(work, "log", "-1", "--format=%s", f"{branch}^")) == (["x", "left"], "inside")
    assert (check(work), git(work, "branch", "--list", "side")) == ("", "")
    assert "alternates" not in os.listdir(work / ".git" / "objects" / "info")
