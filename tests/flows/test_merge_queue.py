"""The merge queue on real repositories, with checks that are told by file names."""

import asyncio
import math
from pathlib import Path

import pytest

from retinue.core.merge_report import Refused
from retinue.features.merges.journal import QueueBusy, hold_queue
from retinue.features.merges.queue import AuthorRequest, Verdict
from retinue.features.merges.target import MergeTarget
from tests.flows.merge_world import BASE, Desk, git, make_repository

GOOD = {"x.txt": "x\n"}


def make_desk(root: Path, branches: dict[str, dict[str, str]], **more: object) -> Desk:
    make_repository(root / "repo", branches, BASE)
    return Desk(root / "repo", root / "home", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "culprit"), [(1, 1), (2, 2), (5, 3), (8, 1), (8, 8), (13, 9), (20, 20)])
async def test_culprit_costs_few_checks(tmp_path: Path, size: int, culprit: int) -> None:
    names = [f"b{number}" for number in range(1, size + 1)]
    bad = f"b{culprit}"
    desk = make_desk(
        tmp_path, {name: {f"{name}.txt": "x\n", **({"broken/x": ""} if name == bad else {})} for name in names}
    )
    report = await desk.land(*names)
    assert (list(report.landed), report.refused[0].branch) == ([name for name in names if name != bad], bad)
    # Not counted: the check of the whole batch, that of the target, and that of what is above the culprit.
    own = len(desk.read_log()) - 1 - (culprit == 1) - (culprit < size)
    assert own <= math.ceil(math.log2(size)) + 1
    assert len({line[0] for line in desk.read_log()}) == len(desk.read_log()) - 1


@pytest.mark.parametrize(("results", "landed"), [("FPP", True), ("FPF", False), ("FF", False)])
async def test_two_of_three_checks_decide(tmp_path: Path, results: str, landed: bool) -> None:
    desk = make_desk(tmp_path, {"good": GOOD})
    left = list(results)

    async def check(commit: str) -> Verdict:
        passed = commit == git(desk.repo, "rev-parse", "main") or left.pop(0) == "P"
        return Verdict(passed, "" if passed else "make test", "")

    desk.check = check  # type: ignore[method-assign]
    report = await desk.land("good")
    words = tuple({"F": "failed", "P": "passed"}[each] for each in results)
    assert (bool(report.landed), left) == (landed, [])
    assert [(item.command, item.results) for item in report.flaky] == ([("make test", words)] if "P" in results else [])
    assert [item.reason for item in report.refused] == ([] if landed else ["flaky" if "P" in results else "verify"])


async def test_broken_target_blames_nobody(tmp_path: Path) -> None:
    make_repository(tmp_path / "repo", {"one": GOOD, "two": {"y.txt": "y\n"}}, {**BASE, "broken/x": ""})
    desk = Desk(tmp_path / "repo", tmp_path / "home", max_attempts=2)
    author = desk.authors = Author(desk)
    report = await desk.land("one", "two")
    assert [(item.branch, "main itself fails" in item.text) for item in report.refused] == [
        ("one", True),
        ("two", True),
    ]
    assert author.pleas == []


async def test_branch_may_repair_target(tmp_path: Path) -> None:
    make_repository(tmp_path / "repo", {"one": GOOD, "two": {"y.txt": "y\n"}}, {**BASE, "broken/x": ""})
    git(tmp_path / "repo", "switch", "-q", "two")
    git(tmp_path / "repo", "rm", "-q", "broken/x")
    git(tmp_path / "repo", "commit", "-q", "-m", "repair")
    report = await Desk(tmp_path / "repo", tmp_path / "home").land("one", "two")
    assert (sorted(report.landed), report.refused) == (["one", "two"], ())


async def test_moved_target_is_checked_again(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, {"one": {"meaning/0.one": ""}, "two": GOOD, "theirs": {"meaning/0.two": ""}})
    check = desk.check

    async def race(commit: str) -> Verdict:
        if git(desk.repo, "rev-parse", "main") != git(desk.repo, "rev-parse", "theirs"):
            git(desk.repo, "update-ref", "refs/heads/main", "theirs")
        return await check(commit)

    desk.check = race  # type: ignore[method-assign]
    git(desk.repo, "switch", "-q", "--detach")
    report = await desk.land("one", "two")
    assert (report.landed, [item.branch for item in report.refused]) == (("two",), ["one"])
    assert git(desk.repo, "merge-base", "--is-ancestor", "theirs", "main") == ""


async def test_second_queue_names_first(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, {"one": GOOD})
    common = str(desk.repo / ".git")
    async with hold_queue(desk.home, common, "retinue land"):
        with pytest.raises(QueueBusy, match=r"retinue land \(process \d+ on "):
            async with hold_queue(desk.home, common, "another", wait_limit_s=0.1):
                raise AssertionError
        waiting = asyncio.create_task(desk.land("one"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
    assert (await waiting).landed == ("one",)


class Author:
    """An author whose commits are made by a function."""

    def __init__(self, desk: Desk, *answers: dict[str, str]) -> None:
        self.desk = desk
        self.answers = list(answers)
        self.pleas: list[AuthorRequest] = []

    async def find_obstacle(self, branch: str) -> str:
        return ""

    async def ask(self, plea: AuthorRequest) -> str:
        self.pleas.append(plea)
        folder = self.desk.home / f"author-{len(self.pleas)}"
        git(self.desk.repo, "worktree", "add", "-q", str(folder), plea.branch)
        for path, content in self.answers.pop(0).items():
            (folder / path).write_text(content)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", "answer")
        git(self.desk.repo, "worktree", "remove", "--force", str(folder))
        return ""


CLASH = {"pi-agent-1": {"shared/0.txt": "a\n1\nc\n"}, "pi-agent-2": {"shared/0.txt": "a\n2\nc\n"}}


async def test_author_gets_marks_and_may_fail_once(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, CLASH, max_attempts=2)
    author = desk.authors = Author(desk, {"other": "x\n"}, {"shared/0.txt": "a\n1\n2\nc\n"})
    report = await desk.land("pi-agent-1", "pi-agent-2")
    assert (report.landed, report.refused) == (("pi-agent-1", "pi-agent-2"), ())
    assert [(plea.branch, plea.paths, plea.refused.reason) for plea in author.pleas] == [
        ("pi-agent-2", ("shared/0.txt",), "conflict")
    ] * 2
    assert git(desk.repo, "show", "main:shared/0.txt") == "a\n1\n2\nc"
    assert git(desk.repo, "status", "--porcelain") == ""
    # What the first attempt made is kept, though not on the branch.
    [kept] = git(desk.repo, "for-each-ref", "--format=%(objectname)", "refs/pi-agent/").split()
    assert git(desk.repo, "show", f"{kept}:other") == "x"


async def test_branch_is_set_back_after_last_attempt(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, CLASH, max_attempts=1)
    desk.authors = Author(desk, {})
    before = git(desk.repo, "rev-parse", "pi-agent-2")
    report = await desk.land("pi-agent-1", "pi-agent-2")
    assert (report.landed, git(desk.repo, "rev-parse", "pi-agent-2")) == (("pi-agent-1",), before)
    [refused] = report.refused
    assert isinstance(refused, Refused)
    assert "conflict marks are left in 'shared/0.txt'" in refused.text


async def test_killed_while_author_works(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, CLASH, max_attempts=1)
    author = desk.authors = Author(desk, {"shared/0.txt": "a\n1\n2\nc\n"})
    read = MergeTarget.find_marked

    async def cut_off(self: MergeTarget, *words: object) -> list[str]:
        raise KeyboardInterrupt

    MergeTarget.find_marked = cut_off  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            await desk.land("pi-agent-1", "pi-agent-2")
    finally:
        MergeTarget.find_marked = read  # type: ignore[method-assign]
    report = await desk.land("pi-agent-1", "pi-agent-2")
    assert (report.landed, len(author.pleas)) == (("pi-agent-1", "pi-agent-2"), 1)
