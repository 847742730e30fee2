import ctypes
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
    # The names of hidden files can be listed there, not their content; and what others were started with.
    "landlock": {"private tmp", "socketpair", "ssh list", "command line"},
}
libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def open_shared(name: str) -> Iterator[None]:
    """What programs of a user share by a number or a name, for everybody."""
    key = int(name[-6:], 16)
    before = os.umask(0)
    queue = libc.mq_open(f"/{name}".encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
    os.umask(before)
    made = [libc.shmget(key, 4096, 0o1666), libc.semget(key, 1, 0o1666), libc.msgget(key, 0o1666)]
    assert min(queue, *made) >= 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.close(queue)
        libc.mq_unlink(f"/{name}".encode())
        assert (libc.shmctl(made[0], 0, None), libc.semctl(made[1], 0, 0), libc.msgctl(made[2], 0, None)) == (0, 0, 0)


@contextmanager
def open_host(world: World) -> Iterator[str]:
    """What a command could talk to, look into or end; the arguments that name it to the probe."""
    path, name = str(world.workspace / "sock"), f"retinue-{os.urandom(6).hex()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters,
        open_shared(name),
        subprocess.Popen([*become(world.who), "sleep", "60"], env={"PATH": PATH, "CANARY_KEY": "CANARY"}) as process,
    ):
        unix.bind(path)
        unix.listen()
        letters.bind(str(world.workspace / "letters"))
        abstract.bind(f"\0{name}")
        abstract.listen()
        # What a careless parent would leave open for its children.
        os.set_inheritable(tcp.fileno(), True)
        if become(world.who):
            os.chown(path, STRANGER, STRANGER)
            os.chown(world.workspace / "letters", STRANGER, STRANGER)
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


@pytest.mark.attack("B9", "B10", "B11", "B13", "B14", "B15", "B16", "I9", "SEC-2")
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
    assert len(results) >= 68


# Processes and objects of others, which a writing run has no more business with.
REACH = {
    *("limits of others", "limits, odd number", "processors of others", "policy of others", "parameters of others"),
    *(
        "attributes of others",
        "nice of others",
        "disk priority of others",
        "compare",
        "signal",
        "pidfd signal",
        "ptrace",
    ),
    *("memory", "environ", "shared memory", "semaphores", "messages", "posix queue", "lease", "keyctl"),
}


@pytest.mark.attack("I9")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_writer_reaches_nobody_either(backend: Backend, who: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "CANARY")
    with open_box(backend, who, writing=True) as box, open_host(box.world) as named:
        if backend == "bwrap":
            box.confinement._open_tmp()  # type: ignore[attr-defined]
        shutil.copy(DATA / "probe.py", box.world.workspace / "probe.py")
        code, text = box.run(f"/usr/bin/python3 -I probe.py {named}")
        assert code == 0, text
        results = json.loads(text.splitlines()[-1])
    assert set(results) >= REACH
    assert {name for name in REACH if results[name] == "ok"} == set()
    # Without mounts nothing but the filter guards files of the same owner elsewhere.
    flags = {"setflags, odd number", "project flags", "version", "older version", "letter", "raw letter"}
    assert backend == "bwrap" or {name for name in flags if results[name] == "ok"} == set()


# Refused by every new kernel, absent here, or asked in a way that only tells whether the call is filtered.
NEVER = {"tiocsti", "tty", "disk", "by handle", "sysrq", "bpf", "compare"}
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
