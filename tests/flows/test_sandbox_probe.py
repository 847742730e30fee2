import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from retinue.sandbox.status import Backend
from tests.flows.sandbox_world import (
    BACKENDS,
    DATA,
    PATH,
    STRANGER,
    Box,
    Who,
    World,
    become,
    list_users,
    open_box,
    open_world,
)

# What a private place is there for, and what reaches nobody outside.
ALLOWED = {
    "bwrap": {"private tmp", "shm", "var tmp", "run", "socketpair"},
    # The names of hidden files can be listed there, not their content.
    "landlock": {"private tmp", "socketpair", "ssh list"},
}


@contextmanager
def open_host(world: World) -> Iterator[str]:
    """What a command could talk to, look into or end; the arguments that name it to the probe."""
    path, name = str(world.workspace / "sock"), f"retinue-{os.urandom(6).hex()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen([*become(world.who), "sleep", "60"], env={"PATH": PATH, "CANARY_KEY": "CANARY"}) as process,
    ):
        unix.bind(path)
        unix.listen()
        abstract.bind(f"\0{name}")
        abstract.listen()
        # What a careless parent would leave open for its children.
        os.set_inheritable(tcp.fileno(), True)
        if become(world.who):
            os.chown(path, STRANGER, STRANGER)
        try:
            yield f'"$W" "$H" "$TMPDIR" {process.pid} {tcp.getsockname()[1]} {name}'
        finally:
            process.kill()


def attempt_all(box: Box) -> dict[str, str]:
    shutil.copy(DATA / "probe.py", box.world.workspace / "probe.py")
    with open_host(box.world) as named:
        before = box.world.digest()
        code, text = box.run(f"/usr/bin/python3 -I probe.py {named}")
        assert code == 0, text
        assert box.world.digest() == before
    found: dict[str, str] = json.loads(text.splitlines()[-1])
    return found


@pytest.mark.attack("B9", "B10", "B11", "B13", "B14", "B15", "B16", "SEC-2")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_probe_finds_no_way(
    backend: Backend, who: Who, monkeypatch: pytest.MonkeyPatch, measure: Callable[..., None]
) -> None:
    monkeypatch.setenv("CANARY_KEY", "CANARY")
    with open_box(backend, who) as box:
        results = attempt_all(box)
    found = {name for name, answer in results.items() if answer == "ok"} - ALLOWED[backend]
    measure("SEC-2", f"{backend}, {who}", attempts=len(results), succeeded=len(found))
    assert found == set()
    assert results["private tmp"] == results["socketpair"] == "ok"
    assert len(results) >= 46


# Refused by every new kernel, absent here, or asked in a way that only tells whether the call is filtered.
NEVER = {"tiocsti", "tty", "disk", "by handle", "sysrq", "bpf"}
ROOT_ONLY = {"raw", "packet", "remount", "core pattern", "sys", "run", "dev", "ptrace", "memory"}


@pytest.mark.attack("B9", "B10", "B11", "B13", "B14", "B16", "SEC-2")
@pytest.mark.parametrize("who", list_users())
def test_probe_succeeds_outside(who: Who) -> None:
    with open_world(who) as world, open_host(world) as named:
        shutil.copy(DATA / "probe.py", world.workspace / "probe.py")
        world.run_bare(f'/usr/bin/python3 -I probe.py {named} >"$H/out"', own_mounts=who == "root")
        results = json.loads((world.home / "out").read_text())
    dead = {name for name, answer in results.items() if answer != "ok"}
    assert dead - NEVER - (ROOT_ONLY if who == "user" else set()) == set()
