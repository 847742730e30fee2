"""Twenty agents, conflicts of every kind, and SIGKILL at random steps of the queue."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.merge_world import AGENTS, Desk, git, judge_paths, write_script

FEW = (1, 4, 11)


@pytest.mark.parametrize("seeds", [FEW])
def test_killed_queue_lands_everything(seeds: tuple[int, ...], tmp_path: Path) -> None:
    run_seeds(seeds, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 200, 10))
def test_hundred_seeds_land_everything(first: int, tmp_path: Path) -> None:
    run_seeds(tuple(range(first, first + 10)), tmp_path, 12)


def run_seeds(seeds: tuple[int, ...], root: Path, most: int) -> None:
    """Run a queue per seed, killed at most so many times."""
    words = [sys.executable, "-m", "tests.flows.merge_world", str(root), str(most), *map(str, seeds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seed"] for line in lines] == list(seeds)
    assert sum(line["kills"] for line in lines) >= len(seeds)
    for line in lines:
        check_landed(root / str(line["seed"]), line["seed"], line["report"], line["kills"])


def check_landed(folder: Path, seed: int, report: dict[str, object], kills: int) -> None:
    script, repo, desk = write_script(seed), folder / "repo", Desk(folder / "repo", folder / "home")
    assert sorted(report["landed"]) == sorted(script.landing)  # type: ignore[call-overload]
    rows = [line.split() for line in git(repo, "rev-list", "--first-parent", "--parents", "main").splitlines()]
    merges, tips = rows[:-1], {name: git(repo, "rev-parse", name) for name in script.files}
    # One merge commit per landed branch, none lost and none twice, no branch moved, each commit passes.
    assert sorted(row[2] for row in merges) == sorted(tips[name] for name in script.landing)
    assert {name: git(repo, "rev-list", "--count", f"{rows[-1][0]}..{name}") for name in tips} == dict.fromkeys(
        tips, "1"
    )
    for row in merges:
        assert judge_paths(git(repo, "ls-tree", "-r", "--name-only", row[0]).splitlines()) == ""
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(repo, "status", "--porcelain") == ""
    assert "missing" not in git(repo, "fsck", "--connectivity-only")
    culprits = AGENTS - len(script.landing)
    # Bisection, the repetition of the last check, and the check of what was above the culprit.
    extra = math.ceil(math.log2(AGENTS)) + 2
    chances = sum(1 for line in desk.read_log() if line[2] == "chance")
    assert len(desk.read_log()) <= 2 + kills + (culprits + 2 * chances) * extra
