"""Sockets that a writing run with the network must not reach: of no file, of others in the home, of other families."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.core.tool import ToolContext
from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import SandboxSettings, build_writing
from retinue.sandbox.server import ForkServer
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool
from tests.flows.sandbox_world import BACKENDS, need_status
from tests.needs import read_abi

REACH = "python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect('\\0{}')\" && echo CONNECTED"
OWN = "import socket as s; a = s.socket(s.AF_UNIX); a.bind(chr(0) + 'mine-{}'); a.listen(); "
OWN += "s.socket(s.AF_UNIX).connect(a.getsockname()); print('met')"


def open_server(kind: str, folder: Path) -> ForkServer:
    """Commands are started by a thread of an ordinary user or of root, or by the fork server in a group of its own."""
    if kind == "second version":
        (folder / "cgroup.procs").touch()
        return ForkServer(control_group=ControlGroup(str(folder), is_root=True))
    return ForkServer(control_group=ControlGroup(is_root=kind == "root"))


async def run(
    backend: str,
    kind: str,
    folder: Path,
    command: str,
    *,
    work: str = "w",
    writable: tuple[str, ...] = (),
    network: bool = True,
) -> str:
    need_status(backend)
    (folder / work).mkdir(exist_ok=True)
    machine = Machine(Probe(backends=(backend,)))
    machine.server = open_server(kind, folder)
    try:
        profile = build_writing(folder / work, SandboxSettings(home=str(folder), writable=writable, network=network))
        confinement = open_sandbox(machine.look(), profile, machine.server)
        result = await BashTool(TreeProbe()).call(
            {"command": command}, ToolContext(folder / work, confinement=confinement)
        )
        confinement.close()
    finally:
        machine.close()
    return result.content[0].text


@pytest.mark.attack("B16")
@pytest.mark.skipif(read_abi() < 6, reason="this kernel cannot keep such sockets apart")
@pytest.mark.parametrize("kind", ["user", "root", "second version"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_abstract_sockets_are_out_of_reach(tmp_path, backend, kind):
    name = f"retinue-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX) as desktop, socket.socket(socket.AF_UNIX) as outside:
        desktop.bind(f"\0{name}")
        desktop.listen()
        outside.connect(f"\0{name}")  # whoever is outside can
        text = await run(backend, kind, tmp_path, f'{REACH.format(name)}; python3 -c "{OWN.format(name)}"')
    assert ("CONNECTED" in text, "OSError" in text or "PermissionError" in text) == (False, True)
    assert ("met" in text) is (backend == "bwrap")


@pytest.mark.attack("B16")
@pytest.mark.parametrize("place", ["/run", "/tmp"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_engines_sockets_are_out_of_reach(tmp_path, backend, place):
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} is not ours to write")
    path = f"{place}/retinue-{os.urandom(4).hex()}.sock"
    with socket.socket(socket.AF_UNIX) as engine, socket.socket(socket.AF_UNIX) as outside:
        engine.bind(path)
        engine.listen()
        outside.connect(path)
        command = f"python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect('{path}')\" && echo CONNECTED"
        text = await run(backend, "user", tmp_path, command)
        os.unlink(path)
    assert ("CONNECTED" in text, "Error" in text) == (False, True)


@pytest.mark.attack("B16")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_unusual_families_are_refused(tmp_path, backend):
    code = "import socket as s\nfor f in (s.AF_INET, s.AF_INET6): s.socket(f).close()\n"
    code += "for f in (38, 40):\n try: s.socket(f, s.SOCK_SEQPACKET).close()\n except OSError as e: print(e.errno)"
    text = await run(backend, "user", tmp_path, f"python3 - <<'X'\n{code}\nX")
    assert text.split() == ["97", "97"]


@pytest.mark.attack("B16")
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_network_is_the_users_choice(tmp_path, backend, network):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        command = f'python3 -c "import socket as s; s.create_connection({address}, 2)" && echo CONNECTED'
        text = await run(backend, "user", tmp_path, command, network=network)
    assert ("CONNECTED" in text, "Error" in text) == (network, not network)


@contextmanager
def listen(path: Path, way: str) -> Iterator[None]:
    """A socket of another program, and a test that it can be reached from outside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Bound by its name in the directory that a program works in, or under another name first, as ssh does.
    name = {"plain": str(path), "relative": path.name, "renamed": f"{path}.new"}[way]
    code = f"import socket as s, sys; a = s.socket(s.AF_UNIX); a.bind({name!r}); a.listen(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        if way == "renamed":
            os.rename(name, path)
        with socket.socket(socket.AF_UNIX) as outside:
            outside.connect(str(path))
        try:
            yield
        finally:
            server.kill()


def reach(path: Path) -> str:
    return f"python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect('{path}')\" && echo CONNECTED"


@pytest.mark.sample(7)
@pytest.mark.attack("I10")
@pytest.mark.parametrize("way", ["plain", "relative", "renamed"])
@pytest.mark.parametrize("place", [".agent.sock", "a/deep er/agent.sock", ".cache/agent.sock"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_sockets_in_home_are_out_of_reach(tmp_path, backend, place, way):
    with listen(tmp_path / place, way):
        text = await run(backend, "user", tmp_path, reach(tmp_path / place), writable=("~",))
    assert ("CONNECTED" in text, "Error" in text) == (False, True), text


@pytest.mark.attack("I10")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_home_as_workspace_opens_no_socket(tmp_path, backend):
    with listen(tmp_path / ".agent.sock", "plain"):
        text = await run(backend, "user", tmp_path, reach(tmp_path / ".agent.sock"), work=".")
    assert ("CONNECTED" in text, "Error" in text) == (False, True), text


@pytest.mark.parametrize(("place", "writable"), [("w/own.sock", ("~",)), ("own.sock", ("~", "~/own.sock"))])
async def test_own_and_named_sockets_are_reached(tmp_path, place, writable):
    with listen(tmp_path / place, "plain"):
        text = await run("bwrap", "user", tmp_path, reach(tmp_path / place), writable=writable)
    assert "CONNECTED" in text, text


async def test_dead_socket_is_no_obstacle(tmp_path):
    path = tmp_path / ".cache" / "tool.sock"
    with listen(path, "plain"):
        pass
    text = await run("bwrap", "user", tmp_path, f"rm {path} && echo gone", writable=("~/.cache",))
    assert ("gone" in text, path.exists()) == (True, False), text
