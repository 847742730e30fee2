"""Agents that prepare the repository in which they work for what the program does there afterwards."""

import json
import subprocess

import pytest

from tests.flows.merge_world import make_repository
from tests.flows.sandbox_world import need_status
from tests.needs import explain_lack

CHECKOUT = """
mkdir n && cd n && git init -q && echo $PWD/../.git/objects > .git/objects/info/alternates
git symbolic-ref HEAD refs/heads/main && git update-ref refs/heads/main $(git -C .. rev-parse main)
git reset -q --hard && echo '* filter=bad' > .git/info/attributes
git config filter.bad.smudge 'touch RAN; cat' && git config core.worktree VICTIM; cd .. && echo n >> .git/info/exclude
mkdir -p .git/worktrees/n && echo ref: refs/heads/main > .git/worktrees/n/HEAD
echo ../.. > .git/worktrees/n/commondir && echo $PWD/n/.git > .git/worktrees/n/gitdir
"""
OBJECTS = """
tree=$(git rev-parse 'HEAD^{tree}')
file=$(echo evil | git hash-object -w --stdin)
folder=$(printf '100644 blob %s\\tevil.py\\n' $file | git mktree)
folder=$(printf '040000 tree %s\\textensions\\n' $folder | git mktree)
other=$( (git ls-tree $tree; printf '040000 tree %s\\t.pi\\n' $folder) | git mktree)
rm -f .git/objects/${tree:0:2}/${tree:2}
cp .git/objects/${other:0:2}/${other:2} .git/objects/${tree:0:2}/${tree:2}
echo changed > a.txt
"""


@pytest.fixture
def repo(place):
    need_status("landlock" if explain_lack("bwrap") else "bwrap")
    make_repository(place.work, {"good": {"good.txt": "good\n"}}, {"a.txt": "a\n"})
    (place.agent_dir / "subagents.json").write_text(json.dumps({"landing": {"verify": "true"}}))
    (place.home / "victim").mkdir()
    (place.home / "victim" / "a.txt").write_text("a\n")
    return place


def work(place, command):
    call = {"name": "bash", "arguments": {"command": command}}
    assert place.run("-p", "go", replies=[{"calls": [call]}, {"text": "done"}]).status == 0


@pytest.mark.attack("J4")
@pytest.mark.parametrize("has_worktree", [True, False])
def test_false_checkout_gets_no_files_and_runs_no_filter(repo, has_worktree):
    script = CHECKOUT if has_worktree else CHECKOUT.replace("git config core.worktree VICTIM", "true")
    work(repo, script.replace("VICTIM", str(repo.home / "victim")).replace("RAN", str(repo.home / "ran")))
    assert (repo.work / ".git/worktrees/n/gitdir").exists()
    done = repo.run("land", "good", "--json")
    assert (done.status, json.loads(done.stdout)["landed"]) == (0, ["good"])
    assert (repo.work / "good.txt").read_text() == "good\n"
    assert [path.name for path in (repo.home / "victim").iterdir()] == ["a.txt"]
    assert not (repo.home / "ran").exists()


@pytest.mark.attack("J5")
@pytest.mark.parametrize("link", ["logs/refs/heads/main", "logs/refs/heads", "logs"])
def test_linked_log_is_not_written(repo, link):
    target = repo.home / "victim" / "a.txt" if link.endswith("main") else repo.home / "victim"
    inner = "main" if link.endswith("heads") else "refs/heads/main"
    if not link.endswith("main"):
        (target / inner).parent.mkdir(parents=True, exist_ok=True)
        (target / inner).write_text("a\n")
    work(repo, f"rm -rf .git/{link}; mkdir -p .git/{link}; rmdir .git/{link}; ln -s {target} .git/{link}")
    done = repo.run("land", "good", "--json")
    written = target if link.endswith("main") else target / inner
    assert (done.status, written.read_text(), "Traceback" in done.stderr) == (1, "a\n", False)


@pytest.mark.attack("J3")
def test_replaced_tree_is_not_restored(repo):
    work(repo, OBJECTS)
    done = repo.run("rewind")
    assert (done.status, (repo.work / ".pi").exists(), "damaged" in done.stderr) == (1, False, True)


@pytest.mark.attack("J6")
@pytest.mark.parametrize("path", [".pi/extensions/evil.py", ".mcp.json", ".husky/pre-commit"])
def test_agent_lands_nothing_that_it_must_not_write(repo, path):
    subprocess.run(["git", "config", "core.hooksPath", ".husky"], cwd=repo.work, check=True)
    (repo.agent_dir / "subagents.json").write_text(json.dumps({"landing": {"verify": "true", "mode": "auto"}}))
    command = (
        f"export GIT_INDEX_FILE=$TMPDIR/index; git read-tree main; file=$(echo evil | git hash-object -w --stdin); "
        f"git update-index --add --cacheinfo 100755,$file,{path}; "
        "git branch pi-agent-evil $(git commit-tree -p main -m x $(git write-tree)); git branch pi-agent-good good"
    )
    calls = [("bash", {"command": command}), ("land_branches", {"all": True})]
    replies = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    assert repo.run("-p", "go", replies=[*replies, {"text": "done"}]).status == 0
    assert ((repo.work / path).exists(), (repo.work / "good.txt").exists()) == (False, True)
