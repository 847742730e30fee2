import subprocess
import time

import pytest

from retinue.features.checkpoint.store import CheckpointStore
from retinue.testing import make_repo


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rules", "most"), [("", 2), ("* text=auto\n*.bin filter=lfs\n", 4)], ids=["plain", "attributes"]
)
async def test_checkpoint_of_many_files_costs_little(tmp_path, monkeypatch, rules, most):
    """At most twice the time of `git status` on 50,000 files; the first one with attributes at most four times."""
    for name, value in {"COUNT": "1", "KEY_0": "gc.auto", "VALUE_0": "0"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)  # nothing is packed while we measure
    files = {f"d{number // 500}/e{number % 500 // 50}/f{number}": f"{number}\n" * 40 for number in range(50_000)}
    files |= {".gitattributes": rules} if rules else {}
    work = tmp_path / "work"
    work.mkdir()
    make_repo(work, files)
    subprocess.run(["git", "repack", "-adq"], cwd=work, check=True)
    plain, first, later = [], [], []
    for turn in range(7):
        (work / "d1" / f"new{turn}").write_text("new")
        (work / "d2" / "e2" / "f1100").write_text(str(turn))
        plain.append(measure(work))
        store = CheckpointStore(work, tmp_path / f"own{turn}")
        for taken in (first, later):
            begun = time.perf_counter()
            await store.take("restore", session="s")
            taken.append(time.perf_counter() - begun)
            (work / "d3" / f"{turn}").write_text("new")
    print(f"git status {min(plain):.2f} s, first checkpoint {min(first):.2f} s, later {min(later):.2f} s")
    assert min(first) <= most * min(plain), (plain, first)
    assert min(later) <= 2 * min(plain), (plain, later)


def measure(work):
    begun = time.perf_counter()
    subprocess.run(["git", "status", "--porcelain"], cwd=work, check=True, capture_output=True)
    return time.perf_counter() - begun
