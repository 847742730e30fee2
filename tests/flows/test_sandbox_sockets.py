"""Sockets that a writing run with the network must not reach: those without a file, and other families."""

import os
import socket
from pathlib import Path

import pytest

from retinue.core.tool import ToolContext
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.corral import Corral
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import Wishes, build_writing
from retinue.sandbox.server import ForkServer
from retinue.tools.shell.bash import BashTool
from retinue.tools.trees import TreeProbe
from tests.flows.sandbox_world import BACKENDS, need_status
from tests.needs import read_abi

REACH = "python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect('\\0{}')\" && echo CONNECTED"
OWN = "import socket as s; a = s.socket(s.AF_UNIX); a.bind(chr(0) + 'mine-{}'); a.listen(); "
OWN += "s.socket(s.AF_UNIX).connect(a.getsockname()); print('met')"


def open_server(kind: str, folder: Path) -> ForkServer:
    """Commands are started by a thread of an ordinary user or of root, or by the fork server in a group of its own."""
    if kind == "second version":
        (folder / "cgroup.procs").touch()
        return ForkServer(corral=Corral(str(folder), is_root=True))
    return ForkServer(corral=Corral(is_root=kind == "root"))


async def run(backend: str, kind: str, folder: Path, command: str, *, network: bool = True) -> str:
    need_status(backend)
    (folder / "w").mkdir()
    machine = Machine(Probe(backends=(backend,)))
    machine.server = open_server(kind, folder)
    try:
        profile = build_writing(folder / "w", Wishes(home=str(folder), network=network))
        confinement = open_sandbox(machine.look(), profile, machine.server)
        result = await BashTool(TreeProbe()).call(
            {"command": command}, ToolContext(folder / "w", confinement=confinement)
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
