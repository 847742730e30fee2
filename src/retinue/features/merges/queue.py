"""The merge queue: stacks branches on a target, finds the ones to blame if a check fails, and lands the rest.

Everything that it must remember is in the journal; it can be killed at any point and run again. Must not know how a
check is run or how an author is asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec import structs

from retinue.core.errors import RetinueError
from retinue.core.merge_report import MergeReport, MergeStep, RefusalReason, Refused
from retinue.core.run import BRANCH_PREFIX
from retinue.features.merges.checkout import advance, attach, describe_stay, detach, find_obstacle, mend
from retinue.features.merges.journal import (
    Asked,
    Asking,
    Began,
    Checked,
    Checking,
    Contained,
    Ended,
    Joined,
    Left,
    MergeJournal,
    Moved,
    Moving,
    Noted,
    QueueState,
)
from retinue.features.merges.target import GitFailed, MergeTarget
from retinue.features.worktree.saved_work import list_some

_OUTPUT_CHARS = 4_000
_ENOUGH = 2
"""So many equal results decide about a tree."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check."""

    passed: bool
    command: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class AuthorRequest:
    """What the author of a branch is asked for. The branch is at a merge commit with the target."""

    branch: str
    target: str
    merge: str
    """That commit."""
    refused: Refused
    paths: tuple[str, ...]
    """Files with conflict marks."""


class Authors(Protocol):
    """The runs that made the branches."""

    async def find_obstacle(self, branch: str) -> str:
        """Return why the author of a branch cannot be asked; empty if it can."""
        ...

    async def ask(self, author_request: AuthorRequest) -> str:
        """Let the author work on its branch until it ends; return what went wrong, or an empty string.

        The queue asks again if it was killed meanwhile; an author that works on it, or has done so, goes on or is done.
        Raises RetinueError if the author cannot work here.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Layer:
    """One merge commit of the stack."""

    branch: str
    commit: str
    """The tip of the branch."""
    merge: str
    tree: str


@dataclass(frozen=True, slots=True)
class _Judgement:
    good: int
    """So many layers, from the bottom, may land."""
    verdict: Verdict | None = None
    """Why the layer above them may not; None if there is none."""
    is_flaky: bool = False
    is_target: bool = False
    """The target fails without it, too."""


class MergeQueue:
    def __init__(  # noqa: PLR0913 - each is used by name
        self,
        target: MergeTarget,
        journal: MergeJournal,
        *,
        check: Callable[[str], Awaitable[Verdict]] | None,
        commands: tuple[str, ...] = (),
        authors: Authors | None = None,
        max_attempts: int = 0,
        is_dry: bool = False,
        find_fault: Callable[[Sequence[str]], str] = lambda paths: "",
        tell: Callable[[MergeStep], None] = lambda step: None,
    ) -> None:
        """Without `check`, everything lands that merges cleanly. `commands` are what `check` runs.

        `find_fault` returns why these files may not be changed, or an empty string.
        """
        self._target = target
        self._journal = journal
        self._check_commit = check
        self._verify = None if check is None else commands
        self._authors = authors
        self._max_attempts = max_attempts if authors is not None else 0
        self._is_dry = is_dry
        self._find_fault = find_fault
        self._tell = tell

    @property
    def _state(self) -> QueueState:
        return self._journal.state

    async def run(self, branches: Sequence[str]) -> MergeReport:
        """Land branches, after what an interrupted queue has begun. Raises GitFailed and OSError."""
        await self._begin(branches)
        self._tell(MergeStep("started", tuple(self._state.branches)))
        await self._land_waiting()
        while asking := await self._choose_author():
            await self._finish_asking(asking)
            await self._land_waiting()
        self._journal.write(Ended(self._state.after))
        self._tell(MergeStep("ended", tuple(self._state.landed)))
        return self._report()

    def _report(self) -> MergeReport:
        state, began = self._state, self._state.began
        assert began is not None
        refused = tuple(state.left[name].refused for name in state.branches if name in state.left)
        landed, notes = tuple(state.landed), tuple(dict.fromkeys(state.notes))
        after = began.before if self._is_dry else state.after
        return MergeReport(
            self._target.name, began.before, after, landed, refused, tuple(state.flaky), notes, self._is_dry
        )

    async def _begin(self, branches: Sequence[str]) -> None:
        """Continue the interrupted queue if the branches include all that it has left; otherwise begin a new one."""
        state, names, target = self._state, tuple(dict.fromkeys(branches)), self._target
        began = state.began
        if state.is_unfinished and began is not None:
            if state.asking is not None:
                await target.clear_locks(self._journal.written_s, f"refs/heads/{state.asking.branch}")
            place = state.moving.checkout if state.moving else await target.find_checkout(began.target)
            if place:
                await target.clear_locks(self._journal.written_s, "index", "HEAD", cwd=place)
            await self._settle_move(began.target)
            is_same = (began.target, began.verify) == (target.name, self._verify)
            if is_same and set(state.open) <= set(names):
                new = [name for name in names if await self._is_new(name)]
                if new:
                    self._journal.write(Joined(tuple(new)))
                if state.asking is not None:
                    await self._finish_asking(state.asking)
                return
            if state.asking is not None:
                await self._give_up(state.asking, "the queue was interrupted")
        self._journal.begin(Began(target.name, await self._read_tip(), names, self._verify))

    async def _is_new(self, name: str) -> bool:
        state = self._state
        if state.asking is not None and state.asking.branch == name:
            return False
        known = state.landed.get(name) or (state.left[name].commit if name in state.left else "")
        return name not in state.branches or bool(known and await self._target.read(name) not in ("", known))

    async def _land_waiting(self) -> None:
        """Land all waiting branches that can, and refuse the others."""
        deferred: set[str] = set()
        while True:
            tip = await self._read_tip()
            waiting = [each for each in await self._find_waiting(tip) if each[0] not in deferred]
            stack, blocked = await self._stack(tip, waiting)
            for name, commit, paths, text in [] if stack else blocked:
                await self._refuse_conflict(name, commit, paths, text)
            if not stack:
                # The target itself fails its check, and nothing has changed that.
                for name, commit in await self._find_waiting(tip):
                    text = f"{self._target.name} itself fails the check at {tip[:12]}, so nothing on it can be verified"
                    await self._refuse_failed(name, commit, self._decide(await self._read_tree(tip)), text)
                return
            judged = await self._judge(tip, stack)
            if judged.good:
                deferred.clear()
                if not await self._land(tip, stack[: judged.good]):
                    continue
            if judged.verdict is None:
                continue
            culprit = stack[judged.good]
            if judged.is_target:
                deferred.add(culprit.branch)
            else:
                await self._refuse_failed(culprit.branch, culprit.commit, judged.verdict, is_flaky=judged.is_flaky)

    async def _find_waiting(self, tip: str) -> list[tuple[str, str]]:
        """Return the waiting branches and their commits, without those that are gone or in the target already."""
        found = []
        for name in self._state.waiting:
            commit = await self._target.read(name)
            if not commit:
                text = "there is no local branch of this name"
                self._leave(Left(Refused(name, "gone", text=text), ""))
            elif await self._target.contains(tip, commit):
                self._journal.write(Contained(name, commit))
                self._tell(MergeStep("landed", (name,), f"{self._target.name} has it already"))
            else:
                found.append((name, commit))
        return found

    async def _stack(
        self, tip: str, waiting: Sequence[tuple[str, str]]
    ) -> tuple[list[_Layer], list[tuple[str, str, tuple[str, ...], str]]]:
        """Merge branches one on top of the other; also returns those that conflict, with the files and git's text."""
        stack: list[_Layer] = []
        blocked = []
        for name, commit in waiting:
            below = stack[-1].merge if stack else tip
            if stack and await self._target.contains(below, commit):
                continue  # lands with the branch that contains it
            merged = await self._target.merge(below, commit, f"Merge branch '{name}'")
            if merged.conflicts:
                blocked.append((name, commit, merged.conflicts, merged.text))
            elif fault := self._find_fault(await self._target.list_changed(below, merged.commit)):
                self._leave(Left(Refused(name, "protected", text=fault), commit))
            else:
                stack.append(_Layer(name, commit, merged.commit, merged.tree))
        return stack, blocked

    async def _judge(self, tip: str, stack: Sequence[_Layer]) -> _Judgement:
        """Return how much of a stack may land: all of it, or what is below the first layer to blame."""
        if self._check_commit is None:
            return _Judgement(len(stack))
        low, high = 0, len(stack)
        verdict = await self._check(stack[-1].merge, stack[-1].tree, stack)
        while not verdict.passed:
            while high - low > 1:
                middle = (low + high) // 2
                layer = stack[middle - 1]
                is_good = (await self._check(layer.merge, layer.tree, stack[:middle])).passed
                low, high = (middle, high) if is_good else (low, middle)
            blamed = stack[high - 1]
            verdict = await self._check(blamed.merge, blamed.tree, [blamed], times=_ENOUGH)
            if not verdict.passed:
                is_target = (
                    low == 0 and not (await self._check(tip, await self._read_tree(tip), [], times=_ENOUGH)).passed
                )
                is_flaky = len({each.passed for each in self._state.verdicts[blamed.tree]}) > 1
                return _Judgement(low, verdict, is_flaky, is_target)
            # Its first failure was chance; the top of the stack has still failed.
            low, high = high, len(stack)
            verdict = self._decide(stack[-1].tree)
        return _Judgement(len(stack))

    async def _check(self, commit: str, tree: str, layers: Sequence[_Layer], *, times: int = 1) -> Verdict:
        """Return the verdict about a tree; it is checked if it is not known, or known from fewer than `times` failures.

        After two different results, a third one decides.
        """
        assert self._check_commit is not None
        while True:
            known = self._state.verdicts.get(tree, [])
            results = [each.passed for each in known]
            is_known = results in ([True], [False]) and (results == [True] or times == 1)
            if is_known or results.count(True) >= _ENOUGH or results.count(False) >= _ENOUGH:
                break
            names = tuple(layer.branch for layer in layers)
            self._tell(MergeStep("checking", names, commit[:12]))
            self._journal.write(Checking(commit, tree))
            made = await self._check_commit(commit)
            self._journal.write(Checked(commit, tree, made.passed, made.command, made.output[-_OUTPUT_CHARS:]))
            self._tell(MergeStep("checked", names, "passed" if made.passed else f"failed: {made.command}"))
        return self._decide(tree)

    def _decide(self, tree: str) -> Verdict:
        """Return what most checks of a tree said."""
        known = self._state.verdicts.get(tree, [])
        passed = sum(each.passed for each in known) * 2 > len(known)
        last = next(each for each in reversed(known) if each.passed == passed)
        return Verdict(last.passed, last.command, last.output)

    async def _land(self, tip: str, layers: Sequence[_Layer]) -> bool:
        """Move the target to the top of these layers; False if somebody else has moved it."""
        target, after = self._target, layers[-1].merge
        place = "" if self._is_dry else await target.find_checkout(target.name)
        stays = await find_obstacle(target, place, tip, after) if place else ""
        merges = {layer.branch: layer.commit for layer in layers}
        self._journal.write(Moving(tip, after, merges, place, stays))
        return self._tell_moved(await self._make_move(target), merges)

    def _tell_moved(self, moved: bool, merges: dict[str, str]) -> bool:
        self._journal.write(Moved(moved))
        for name in merges if moved else ():
            self._tell(MergeStep("landed", (name,)))
        return moved

    async def _make_move(self, target: MergeTarget) -> bool:
        """Make the announced move, the checkout first, then the branch; False if somebody else has moved it."""
        move = self._state.moving
        assert move is not None
        if self._is_dry:
            return True
        stays = move.stays
        if move.checkout:
            if not stays and not await advance(target, move.checkout, move.before, move.after):
                stays = "its files have changed meanwhile"
            if stays:
                self._note(describe_stay(target, move.checkout, move.before, stays))
                await detach(target, move.checkout, move.before)
        if await target.move(target.ref, move.after, move.before, f"retinue land: {len(move.merges)} merged"):
            return True
        if move.checkout and stays:
            await attach(target, move.checkout)
        elif move.checkout:
            await advance(target, move.checkout, move.after, move.before)
        if await target.read(target.name) == move.before:
            raise GitFailed(f"{target.ref} cannot be moved; is it locked by another git command? Then try again")
        return False

    async def _settle_move(self, name: str) -> None:
        """Complete a move that was announced by a queue that was killed, if it still can be made."""
        move = self._state.moving
        if move is None:
            return
        target = replace(self._target, name=name)
        tip = await target.read(name)
        await target.clear_locks(self._journal.written_s, target.ref)
        if tip == move.before:
            # The user may have changed to another branch since then, or the checkout was detached already.
            if move.checkout and await target.find_checkout(name) != move.checkout:
                self._state.moving = structs.replace(move, checkout="")
            elif move.checkout and not move.stays:
                await mend(target, move.checkout, move.before, move.after)
            moved = await self._make_move(target)
        else:
            moved = bool(tip) and await target.contains(tip, move.after)
        self._tell_moved(moved, move.merges)

    async def _refuse_conflict(self, name: str, commit: str, paths: tuple[str, ...], text: str) -> None:
        conflicting = []
        for other, landed in self._state.landed.items():
            if (await self._target.merge(landed, commit, "")).conflicts:
                conflicting.append(other)
        conflicting = conflicting or [self._target.name]
        told = f"it conflicts with {list_some(conflicting)} in {list_some(paths)}; "
        told += f"merge {self._target.name} into it by hand"
        self._leave(Left(Refused(name, "conflict", tuple(conflicting), text[-_OUTPUT_CHARS:], told), commit))

    async def _refuse_failed(
        self, name: str, commit: str, verdict: Verdict, text: str = "", *, is_flaky: bool = False
    ) -> None:
        """Leave a branch behind; with a text, for another reason than its own, so that its author is not asked."""
        reason: RefusalReason = "flaky" if is_flaky else "verify"
        is_final = bool(text)
        with_ = tuple(self._state.landed) if not text else ()
        if is_flaky:
            text = f"`{verdict.command}` had different results on the same tree and failed in two of three checks"
        elif not text:
            text = f"`{verdict.command}` fails when it is merged onto {self._target.name}"
            text += f", where {list_some(with_)} landed before it" if with_ else ""
        self._leave(Left(Refused(name, reason, with_, verdict.output, text), commit, is_final))

    def _leave(self, left: Left) -> None:
        self._journal.write(left)
        self._tell(MergeStep("refused", (left.refused.branch,), left.refused.text))

    def _note(self, text: str) -> None:
        self._journal.write(Noted(text))
        self._tell(MergeStep("note", (), text))

    async def _choose_author(self) -> Asking | None:
        """Announce the next author to be asked, after merging the target into its branch; None if there is none."""
        state, target = self._state, self._target
        if self._authors is None or self._is_dry:
            return None
        for name in [each for each in state.branches if each in state.left]:
            left = state.left[name]
            used = state.attempts.get(name, 0)
            if left.refused.reason not in ("conflict", "verify") or used >= self._max_attempts or left.is_final:
                continue
            problem = await self._authors.find_obstacle(name)
            if not problem and (place := await target.find_checkout(name)):
                problem = f"its branch is checked out in {place}"
            merged = None
            if not problem:
                title = f"Merge branch '{target.name}' into {name}"
                merged = await target.merge(left.commit, await self._read_tip(), title, marks=True)
                problem = "" if merged.commit else merged.text
            if merged is None or problem:
                self._explain(left, f"its author cannot be asked: {problem}", is_final=True)
                continue
            asking = Asking(name, left.commit, merged.commit, merged.conflicts)
            self._journal.write(asking)
            return asking
        return None

    async def _finish_asking(self, asking: Asking) -> None:
        """Resume the author with the merge; what it brings waits again, otherwise its branch is set back."""
        target, name, left = self._target, asking.branch, self._state.left[asking.branch]
        assert self._authors is not None
        problem, is_final = "", False
        tip = await target.read(name)
        if tip == asking.before:
            reason = f"retinue land: merge {target.name} for the author"
            if await target.move(f"refs/heads/{name}", asking.merge, asking.before, reason):
                tip = asking.merge
        if tip == asking.merge:
            self._tell(MergeStep("asking", (name,), left.refused.reason))
            try:
                problem = await self._authors.find_obstacle(name)
                asked = AuthorRequest(name, target.name, asking.merge, left.refused, asking.paths)
                problem = problem or await self._authors.ask(asked)
            except RetinueError as error:
                problem, is_final = str(error), True
            tip = await target.read(name)
        if not tip or not await target.contains(tip, asking.merge):
            problem = problem or "its branch was changed by somebody else"
        elif marked := await target.find_marked(tip, asking.paths):
            problem = problem or f"conflict marks are left in {list_some(marked)}"
        elif tip == asking.merge:
            problem = problem or "it changed nothing"
        if problem:
            await self._give_up(asking, problem, is_final=is_final)
        else:
            self._journal.write(Asked(name, tip))
            self._journal.write(Joined((name,)))

    async def _give_up(self, asking: Asking, problem: str, *, is_final: bool = False) -> None:
        """Set a branch back to where it was before its author was asked; what was made since then is kept."""
        target, name = self._target, asking.branch
        tip = await target.read(name)
        if tip and await target.contains(tip, asking.merge):
            if tip != asking.merge:
                run_id = name.removeprefix(BRANCH_PREFIX)
                problem += f"; what it did is kept as {await target.keep(run_id, tip)}"
            await target.move(f"refs/heads/{name}", asking.before, tip, "retinue land: set back")
        self._journal.write(Asked(name, problem=problem))
        if left := self._state.left.get(name):
            self._explain(left, f"its author was asked and did not solve it: {problem}", is_final=is_final)

    def _explain(self, left: Left, reason: str, *, is_final: bool = False) -> None:
        """Add to a refusal why its author did not help."""
        told = f"{left.refused.text}; {reason}"
        self._leave(Left(structs.replace(left.refused, text=told), left.commit, is_final))

    async def _read_tip(self) -> str:
        tip = self._state.after if self._is_dry and self._state.began else await self._target.read(self._target.name)
        if not tip:
            raise GitFailed(f"{self._target.ref} does not exist any more")
        return tip

    async def _read_tree(self, commit: str) -> str:
        return (await self._target.git("rev-parse", "--verify", f"{commit}^{{tree}}")).text
