"""Many runs begin at one commit and change nothing: the second costs little, and nothing is missed for it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from retinue.tools.git import GitResult, run_git
from tests.flows.travel_world import BRANCH, Journey, read_tree, take
from tests.flows.worktree_world import git


async def test_unchanged_run_costs_three_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journey = await Journey.begin(tmp_path)
    await (await journey.open()).close()
    asked = []

    async def count(arguments: Sequence[str], *rest: object, **more: object) -> GitResult:
        asked.append(arguments[0])
        return await run_git(arguments, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("retinue.durable.cluster.repository.run_git", count)
    monkeypatch.setattr("retinue.durable.cluster.workspace_bundle.run_git", count)
    checkout = await journey.open()
    assert (await checkout.snapshot(), await journey.land()) == (None, "")
    assert (asked, journey.refs) == (["reset", "ls-files", "update-ref"], ["refs/heads/main"])


async def test_change_at_once_is_seen(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    (checkout.root / "a.txt").write_text("two\n")
    assert await journey.land(await take(checkout)) == BRANCH
    assert git(journey.repo, "show", f"{BRANCH}:a.txt") == "two"


async def test_forgotten_commit_is_sent_again(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    await (await journey.open()).close()
    for repository in (tmp_path / "worker" / "cache").glob("*/git"):
        shutil.rmtree(repository)
    checkout = await journey.open()
    assert read_tree(checkout.root) == read_tree(journey.repo)
