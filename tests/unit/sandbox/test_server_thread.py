import socket
import threading
from functools import partial
from pathlib import Path

import pytest

from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.landlock import has_scopes
from retinue.sandbox.server import RestrictedThread, limit_thread
from tests.needs import read_abi


def count_threads() -> int:
    return sum(thread.name.startswith("retinue-spawn") for thread in threading.enumerate())


def test_thread_ends_with_the_pen(tmp_path: Path) -> None:
    pen, before = (
        RestrictedThread(partial(limit_thread, ControlGroup(str(tmp_path), is_root=False), scoped=False)),
        count_threads(),
    )
    pen.close()
    first = pen.run(threading.get_ident)
    assert (first != threading.get_ident(), count_threads()) == (True, before + 1)
    pen.close()
    assert count_threads() == before
    assert pen.run(lambda: 7) == 7
    pen.close()


@pytest.mark.skipif(read_abi() < 6, reason="this kernel cannot keep sockets apart")
@pytest.mark.parametrize("scoped", [False, True])
def test_abstract_sockets_are_out_of_reach(scoped: bool, tmp_path: Path) -> None:
    pen = RestrictedThread(partial(limit_thread, ControlGroup(str(tmp_path), is_root=False), scoped=scoped))

    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(server.getsockname())
            except PermissionError:
                return "refused"
        return "reached"

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0retinue-{threading.get_native_id()}-{scoped}")
        server.listen()
        assert (pen.run(connect), connect()) == ("refused" if scoped else "reached", "reached")
    pen.close()
    assert has_scopes()


def test_nothing_is_started_by_a_thread_that_is_not_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no Landlock")

    monkeypatch.setattr("retinue.sandbox.landlock.leave_sockets", refuse)
    pen = RestrictedThread(partial(limit_thread, ControlGroup(str(tmp_path), is_root=False), scoped=True))
    started: list[int] = []
    for _ in range(2):
        with pytest.raises(OSError, match="no Landlock"):
            pen.run(lambda: started.append(1))
    assert started == []
    pen.close()
