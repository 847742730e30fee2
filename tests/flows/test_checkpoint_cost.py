import subprocess
import time

import pytest

from retinue.features.checkpoint.store import CheckpointStore
from retinue.testing import make_repo


@pytest.mark.slow
async def test_checkpoint_of_many_files_costs_little(tmp_path):
    """At most twice the time of `git status` on 50,000 files, also with some changes."""
    files = {f"d{number // 500}/e{number % 500 // 50}/f{number}": f"{number}\n" * 40 for number in range(50_000)}
    work = tmp_path / "work"
    work.mkdir()
    make_repo(work, files)
    store = CheckpointStore(work, tmp_path / "own")
    await store.take("restore", session="s")
    plain, taken = [], []
    for turn in range(7):
        (work / "d1" / f"new{turn}").write_text("new")
        (work / "d2" / "e2" / "f1100").write_text(str(turn))
        begun = time.perf_counter()
        subprocess.run(["git", "status", "--porcelain"], cwd=work, check=True, capture_output=True)
        middle = time.perf_counter()
        await store.take("restore", session="s")
        plain.append(middle - begun)
        taken.append(time.perf_counter() - middle)
    assert min(taken) <= 2 * min(plain), (plain, taken)
