import base64
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.tool import ToolContext
from retinue.tools.lsp.pool import LspPool, PoolContext
from retinue.tools.lsp.tool import TIMEOUT, LspTool, Permission
from tests.flows.crew_world import call, git, script, to
from tests.flows.lsp_world import World, write_server
from tests.flows.test_lsp_attacks import Kept, boundaries, build  # noqa: F401
from tests.flows.test_lsp_real import SERVERS, find_program

VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "UV_PROJECT_ENVIRONMENT", "POETRY_CACHE_DIR")
ASKER = """
waiting, plain_read = [], read

def read():
    return waiting.pop(0) if waiting else plain_read()

def hear(message):
    if message["method"] != "initialized":
        return
    send(id=1, method="workspace/configuration", params={"items": [{"section": "python"}, {"section": "other"}]})
    while "method" in (message := plain_read()):
        waiting.append(message)
    active = {name: os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    note(json.dumps([message["result"], active]))

def ask(message):
    answer(message, {"items": []})
"""
RUNNER = """
import subprocess
subprocess.run([".venv/bin/python"])
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in (*VARIABLES, "POETRY_VIRTUALENVS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def make_environment(folder, module="", canary=None):
    """An environment as `python -m venv` makes it, with one module in it."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    program = folder / "bin" / "python"
    if canary is None:
        program.symlink_to(os.path.realpath(sys.executable))
    else:
        program.write_text(f"#!/bin/sh\ntouch ran {canary}\n")
        program.chmod(0o755)
    if module:
        (site / f"{module}.py").write_text("X: int = 1\n")
    return folder


def make_conda(folder):
    made = make_environment(folder)
    (made / "pyvenv.cfg").unlink()
    (made / "conda-meta").mkdir()
    return made


def name_poetry(home, project, version):
    digest = hashlib.sha256(os.path.realpath(project).encode()).digest()
    name = f"work-{base64.urlsafe_b64encode(digest).decode()[:8]}-py{version}"
    return home / ".cache" / "pypoetry" / "virtualenvs" / name


class PythonWorld(World):
    """A project in Python, whose server tells what it was told."""

    def __init__(self, tmp, extra=ASKER, variables=None, **ground):
        super().__init__(tmp, **ground)
        write_server(self.bin, extra, "basedpyright-langserver")
        (self.work / "a.py").write_text("x = 1\n")
        (self.work / "pyproject.toml").write_text("")
        environment = {**self.ground.environment, **(variables or {})}
        self.ground = PoolContext(environment, python="basedpyright", **ground)

    async def learn(self, **more):
        """The settings and the active environments of the server."""
        before = len(self.notes)
        told = await self.ask("diagnostics", file="a.py", **more)
        assert told[:2] == (False, "action: diagnostics\nNo diagnostics."), told
        settings, active = json.loads(self.notes[before:][1])
        assert settings[1] is None
        return settings[0], {name: value for name, value in active.items() if value}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["venv", "conda", "base", "uv", "uv-inside", "poetry", "own", "own-venv", "above"])
async def test_server_has_the_environment(tmp_path, home, kind):
    work = tmp_path / "work"
    made = {
        "venv": lambda: make_environment(tmp_path / "env"),
        "conda": lambda: make_conda(tmp_path / "env"),
        "base": lambda: make_conda(tmp_path / "env"),
        "uv": lambda: make_environment(tmp_path / "env"),
        "uv-inside": lambda: make_environment(work / "made" / "by-uv"),
        "poetry": lambda: make_environment(name_poetry(home, work, "3.11")),
        "own": lambda: make_environment(work / ".venv"),
        "own-venv": lambda: make_environment(work / "venv"),
        "above": lambda: make_environment(work / ".venv"),
    }[kind]()
    variables = {
        "venv": {"VIRTUAL_ENV": str(made)},
        "conda": {"CONDA_PREFIX": str(made), "CONDA_DEFAULT_ENV": "mine"},
        "base": {"CONDA_PREFIX": str(made), "CONDA_DEFAULT_ENV": "base"},
        "uv": {"UV_PROJECT_ENVIRONMENT": str(made)},
        "uv-inside": {"UV_PROJECT_ENVIRONMENT": "made/by-uv"},
    }.get(kind, {})
    async with PythonWorld(tmp_path, variables=variables).open() as world:
        if kind == "above":
            (work / ".git").mkdir()
            (work / "part").mkdir()
            (work / "part" / "pyproject.toml").write_text("")
            shutil.copy(work / "a.py", work / "part" / "a.py")
            world.work = work / "part"
        active = {"CONDA_PREFIX" if kind in ("conda", "base") else "VIRTUAL_ENV": str(made)}
        assert await world.learn() == ({"pythonPath": f"{made}/bin/python"}, active)


async def test_project_environment_comes_first(tmp_path, home):
    active, conda = make_environment(tmp_path / "env"), make_conda(tmp_path / "conda")
    poetry = make_environment(name_poetry(home, tmp_path / "work", "3.11"))
    variables = {"VIRTUAL_ENV": str(active), "CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "base"}
    async with PythonWorld(tmp_path, variables=variables).open() as world:
        assert (await world.learn())[1] == {"VIRTUAL_ENV": str(active)}
        own = make_environment(world.work / ".venv")
        assert await world.learn() == ({"pythonPath": f"{own}/bin/python"}, {"VIRTUAL_ENV": str(own)})
    variables.pop("VIRTUAL_ENV")
    shutil.rmtree(own)
    async with PythonWorld(tmp_path, variables=variables).open() as world:
        assert (await world.learn())[1] == {"VIRTUAL_ENV": str(poetry)}


async def test_copy_has_the_environment_of_its_repository(tmp_path):
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "work"))
    made = make_environment(main / "part" / ".venv")
    (tmp_path / "work" / "part").mkdir()
    async with PythonWorld(tmp_path).open() as world:
        (world.work / "part" / "pyproject.toml").write_text("")
        shutil.copy(world.work / "a.py", world.work / "part" / "a.py")
        world.work /= "part"
        assert await world.learn() == ({"pythonPath": f"{made}/bin/python"}, {"VIRTUAL_ENV": str(made)})


async def test_folder_without_python_is_no_environment(tmp_path):
    (tmp_path / "work" / ".venv").mkdir(parents=True)
    (tmp_path / "env").mkdir()
    async with PythonWorld(tmp_path, variables={"VIRTUAL_ENV": str(tmp_path / "env")}).open() as world:
        assert (await world.learn())[0] is None


@pytest.mark.attack("B22", "F10")
async def test_untrusted_environment_is_not_run(tmp_path):
    make_environment(tmp_path / "work" / ".venv", canary=tmp_path / "canary")
    async with PythonWorld(tmp_path, RUNNER, trusted=False).open() as world:
        is_error, text, _ = await world.ask("diagnostics", file="a.py")
        assert (is_error, "basedpyright-langserver runs the Python of this project" in text) == (False, True), text
    assert (world.notes, (tmp_path / "canary").exists()) == ([], False)


@pytest.mark.attack("B22", "F10")
async def test_untrusted_environment_is_run_inside(tmp_path, boundaries):  # noqa: F811
    canary = tmp_path / "canary"
    make_environment(tmp_path / "work" / ".venv", canary=canary)
    drawn = build(tmp_path, boundaries, "").ground.draw
    quiet = RUNNER + "def note(text):\n    pass\n"
    async with PythonWorld(tmp_path, quiet, trusted=False, draw=drawn).open() as world:
        await world.ask("diagnostics", file="a.py")
    assert ((world.work / "ran").exists(), canary.exists()) == (True, False)


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("is_own", [True, False])
async def test_real_server_knows_the_packages(tmp_path, name, is_own):
    program = find_program(name)
    work = tmp_path / "work"
    work.mkdir()
    made = make_environment(work / ".venv" if is_own else tmp_path / "env", "only_there")
    (work / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1"\n')
    (work / "a.py").write_text("import only_there\n\nprint(only_there.X)\n")
    environment = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    environment["VIRTUAL_ENV"] = str(make_environment(tmp_path / "other") if is_own else made)
    pool = LspPool(PoolContext(environment, python=name))
    tool = LspTool(lambda: pool, Permission())
    for _ in range(8):
        asked = {"action": "diagnostics", "file": "a.py", "severity": "error"}
        result = await tool.call(asked, ToolContext(work))
        if TIMEOUT not in result.content[0].text:
            break
    await pool.close()
    assert result.content[0].text.endswith("\nNo diagnostics.")


async def test_readonly_agent_has_the_environment(tmp_path, agent_dir, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    (work / "pyproject.toml").write_text("")
    (work / "a.py").write_text("import only_there\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(make_environment(tmp_path / "env", "only_there")))
    monkeypatch.setenv("PATH", f"{Path(find_program('ty')).parent}:{os.environ['PATH']}")
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "looker.md").write_text("---\nname: looker\ndescription: d\ntools: read, lsp\n---\nLook.\n")
    asked = call("lsp", action="diagnostics", file="a.py")
    async with Retinue(work, model=script(tmp_path, to("^look", calls=[asked]), to("^look", text="done"))) as crew:
        (result,) = (await crew.call_subagent("looker", "look"))["details"]["results"]
    assert "No diagnostics." in Path(result["sessionFile"]).read_text()
