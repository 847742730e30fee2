"""The program in a folder that holds other repositories: what its agents run and write leaves their hooks alone."""

import shutil
import subprocess

import pytest

from tests.flows.sandbox_world import need_status

COMMANDS = [
    "mkdir -p lib/.git/hooks; echo x >lib/.git/hooks/pre-commit; echo x >>lib/.git/config",
    "rm -rf pkg; mkdir -p pkg/.vscode; echo x >pkg/.vscode/tasks.json",
    'echo x >>"$HOME/.cache/tool/.git/config"',
    "git init -q new",
    "git -C new config a.b c && echo x >new/.git/hooks/pre-commit",
]


@pytest.mark.attack("I7", "C8")
def test_program_leaves_nested_repositories(place):
    need_status("bwrap")
    folders = (place.work / "lib", place.home / ".cache" / "tool", place.work / "new")
    for folder in folders[:2]:
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    shutil.rmtree(place.work / "lib" / ".git" / "hooks")
    (place.work / "pkg" / ".vscode").mkdir(parents=True)
    (place.work / "pkg" / ".vscode" / "tasks.json").write_text("{}\n")
    configs = [folder / ".git" / "config" for folder in folders]
    before = [config.read_bytes() for config in configs[:2]]
    calls = [{"name": "bash", "arguments": {"command": command}} for command in COMMANDS]
    calls += [{"name": "write", "arguments": {"path": "lib/.git/hooks/post-checkout", "content": "x"}}]
    done = place.run("-p", "go", replies=[*({"calls": [call]} for call in calls), {"text": "done"}])
    assert (done.status, [config.read_bytes() for config in configs[:2]]) == (0, before)
    assert (place.work / "pkg" / ".vscode" / "tasks.json").read_text() == "{}\n"
    assert not (place.work / "lib" / ".git" / "hooks").exists()
    assert b"b = c" in configs[2].read_bytes()
