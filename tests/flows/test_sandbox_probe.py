import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from retinue.sandbox.status import Backend
from tests.flows.sandbox_world import BACKENDS, DATA, STRANGER, Box, Who, become, list_users, open_box

# What a private place is there for, and what reaches nobody outside.
ALLOWED = {
    "bwrap": {"private tmp", "shm", "var tmp", "run", "socketpair"},
    # The names of hidden files can be listed there, not their content.
    "landlock": {"private tmp", "socketpair", "ssh list"},
}


@contextmanager
def open_listeners(box: Box) -> Iterator[int]:
    """What a command could talk to, and what it could look into."""
    path = str(box.world.workspace / "sock")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        unix.bind(path)
        unix.listen()
        abstract.bind(f"\0retinue-{os.getpid()}")
        abstract.listen()
        if become(box.world.who):
            os.chown(path, STRANGER, STRANGER)
        yield tcp.getsockname()[1]


def attempt_all(box: Box) -> dict[str, str]:
    shutil.copy(DATA / "probe.py", box.world.workspace / "probe.py")
    with open_listeners(box) as port:
        before = box.world.digest()
        tail = f'"$W" "$H" "$TMPDIR" {os.getpid()} {port}'
        code, text = box.run(f"/usr/bin/python3 -I probe.py {tail}")
        assert code == 0, text
        assert box.world.digest() == before
    found: dict[str, str] = json.loads(text.splitlines()[-1])
    return found


@pytest.mark.attack("B9", "B10", "B11", "B13", "B14", "B15", "B16")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_probe_finds_no_way(backend: Backend, who: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "CANARY")
    with open_box(backend, who) as box:
        results = attempt_all(box)
    assert {name for name, found in results.items() if found == "ok"} - ALLOWED[backend] == set()
    assert results["private tmp"] == results["socketpair"] == "ok"
    assert len(results) >= 46


@pytest.mark.attack("B9")
def test_probe_succeeds_outside() -> None:
    who = list_users()[0]
    with open_box("bwrap", who) as box, open_listeners(box) as port:
        shutil.copy(DATA / "probe.py", box.world.workspace / "probe.py")
        harmless = f'/usr/bin/python3 -I probe.py "$W" "$H" "$TMPDIR" $$ {port} >"$H/out"'
        box.world.run_bare(harmless)
        results = json.loads((box.world.home / "out").read_text())
    live = {name for name, found in results.items() if found == "ok"}
    assert len(live) >= 30, sorted(set(results) - live)
