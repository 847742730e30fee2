import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.features.schedule.store import hold_lock


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_one_holder_at_a_time(folder: int) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(150):
            with hold_lock("x.lock", folder=folder, wait_s=30):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_lock_leaves_nothing(folder: int, tmp_path: Path) -> None:
    with hold_lock("x.lock", folder=folder, wait_s=0):
        assert (tmp_path / "x.lock").read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_held_lock_times_out(folder: int) -> None:
    first, second = (hold_lock("x.lock", folder=folder, wait_s=wait_s) for wait_s in (0, 0.01))
    with first, pytest.raises(TimeoutError), second:
        pass


def test_lock_is_no_link(folder: int, tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), hold_lock("x.lock", folder=folder, wait_s=0):
        pass
    assert not (tmp_path / "elsewhere").exists()
