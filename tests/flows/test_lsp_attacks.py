import os
from pathlib import Path

import pytest

from retinue.features.sandbox import Boundaries
from retinue.sandbox.probe import Machine, Probe
from retinue.settings.subagents import SubagentsConfig
from retinue.tools.lsp.tool import Permission
from tests.flows.lsp_world import FOUND, World
from tests.flows.sandbox_world import need_status

ALL = Permission(allow_mutating=True)
WRITER = """
for path in (os.getcwd() + "/canary", os.getcwd() + "/.cache/x", os.environ["HOME"] + "/canary"):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("x")
    except OSError:
        pass
def note(text):
    pass
"""


@pytest.fixture(params=["bwrap", "landlock"])
def boundaries(home, request):
    need_status(request.param)
    machine = Machine(Probe(backends=(request.param,)))
    own = SubagentsConfig().sandbox
    made = Boundaries(own, home=home, agent_dir=home / ".pi" / "agent", find_machine=lambda: machine)
    yield made
    made.machine.close()


class Kept:
    """A run's boundary as tools see it."""

    def __init__(self, *, readonly: bool) -> None:
        self.is_readonly = readonly

    async def open(self):
        return self


def build(tmp_path: Path, boundaries, extra: str) -> World:
    async def draw(root: str, readonly: bool):
        return (await boundaries.draw(Path(root), readonly=readonly))[0]

    return World(tmp_path, extra, draw=draw)


@pytest.mark.attack("B22", "F10")
async def test_server_of_readonly_run_writes_nothing(tmp_path, boundaries, home):
    world = build(tmp_path, boundaries, WRITER)
    async with world.open():
        assert await world.define(confinement=Kept(readonly=True)) == FOUND
        assert (sorted(os.listdir(world.work)), (home / "canary").exists()) == (["a.go"], False)
        assert await world.define(confinement=Kept(readonly=False)) == FOUND
        assert (world.work / "canary").exists()
        assert len(world.pool.list_sessions()) == 2


@pytest.mark.attack("B22")
@pytest.mark.parametrize("action", ["rename", "codeAction", "restart"])
async def test_readonly_run_has_no_privileged_action(tmp_path, action):
    async with World(tmp_path).open(ALL) as world:
        told = await world.ask(action, confinement=Kept(readonly=True), file="a.go", line=1, column=1, newName="b")
        text = f'Action "{action}" is disabled: this agent is read-only.'
        assert told == (True, text, {"error": {"code": "LSP_ACTION_NOT_ALLOWED", "message": text}})
    assert world.notes == []


@pytest.mark.attack("B22")
async def test_readonly_run_without_sandbox_gets_no_server(tmp_path):
    async with World(tmp_path).open() as world:
        is_error, text, _ = await world.define(confinement=Kept(readonly=True))
        assert (is_error, text) == (True, "a read-only agent gets no language server without a sandbox")
    assert world.notes == []


@pytest.mark.attack("B22")
async def test_rename_and_actions_change_nothing(tmp_path):
    propose = """
    def ask(message):
        uri = message["params"]["textDocument"]["uri"]
        edit = {"changes": {uri: [{"range": place(2, 5), "newText": "hello"}]}}
        action = {"title": "Fix", "kind": "quickfix", "edit": edit}
        answer(message, edit if "newName" in message["params"] else [action])
    """
    async with World(tmp_path, propose).open(ALL) as world:
        before = world.file.read_bytes()
        renamed = await world.ask("rename", file="a.go", line=3, column=6, newName="hello")
        offered = await world.ask("codeAction", file="a.go", line=3, column=6)
        edit = {"changes": {world.file.as_uri(): [{"range": _place(2, 5), "newText": "hello"}]}}
    assert renamed == (False, "action: rename\n1 edits proposed; none is made:\na.go:3:6: hello", edit)
    assert offered[1] == "action: codeAction\navailable code actions (none was executed):\nFix (quickfix)"
    assert offered[2] == {
        "actions": [{"title": "Fix", "kind": "quickfix", "edit": edit}],
        "total": 1,
        "truncated": False,
    }
    assert world.file.read_bytes() == before


def _place(line: int, character: int) -> dict:
    return {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 1}}


@pytest.mark.attack("F10")
async def test_untrusted_project_runs_no_code(tmp_path):
    async with World(tmp_path, trusted=False).open() as world:
        is_error, text, _ = await world.define()
    assert (is_error, world.notes) == (False, [])
    assert text.splitlines()[1].startswith("Unsupported: the gopls language server may run programs of this project")


@pytest.mark.attack("H1", "F10")
async def test_server_sees_no_keys(tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "NODE_OPTIONS"):
        monkeypatch.setenv(name, "canary-value")
    tell = 'note(" ".join(name for name, value in os.environ.items() if "canary" in value))'
    async with World(tmp_path, tell).open() as world:
        await world.define()
    assert world.notes == ["", "start"]


@pytest.mark.sample(7)
@pytest.mark.spec("devkit:79")
@pytest.mark.attack("C1", "C3")
@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.go", "link.go", "folder/outside.go", "~/x.go"])
@pytest.mark.parametrize("action", ["definition", "symbols", "diagnostics"])
async def test_files_outside_are_refused(tmp_path, name, action):
    (tmp_path / "outside.go").write_text("package secret\n")
    async with World(tmp_path).open() as world:
        (world.work / "link.go").symlink_to(tmp_path / "outside.go")
        (world.work / "folder").symlink_to(tmp_path)
        told = await world.ask(action, file=name, line=1, column=1)
        assert told == (True, f"LSP file access outside workspace is not allowed: {name}", {})
        told = await world.ask("workspace-diagnostics", files=["a.go", name])
        assert told == (True, f"LSP file access outside workspace is not allowed: {name}", {})
    assert world.notes == []


@pytest.mark.attack("F10")
async def test_checkout_brings_no_server(tmp_path):
    world = World(tmp_path)
    (tmp_path / ".git").mkdir()
    async with world.open():
        is_error, text, _ = await world.define()
    assert (is_error, text.splitlines()[1].split(":")[0], world.notes) == (False, "Unsupported", [])
    assert "is not installed" in text
