"""The worktree feature: runs an agent in its own worktree and adds the saved branch to its outcome."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from retinue.core.run import Outcome
from retinue.engine.prompt import Place, render_environment, to_line
from retinue.engine.setup import RunSetup
from retinue.features.worktree.copies import Copy, CopyRequest, check_place
from retinue.features.worktree.leftovers import resume_copy
from retinue.features.worktree.records import CopyRecord, Records
from retinue.features.worktree.saved_work import KeptCopy, keep_work

RULE = "\n\n---\n"
"""Separator between a result and its notes."""


class Worktree:
    """`isolation: worktree` for one run, entered for each of its prompts.

    `branch` comes from an earlier attempt; later prompts continue where the last one ended.
    """

    name = "worktree"

    def __init__(
        self,
        records: Records,
        *,
        description: str = "",
        keeps_place: bool = False,
        branch: str = "",
        tmp: Path | None = None,
    ) -> None:
        self._records = records
        self._description = description
        self._keeps_place = keeps_place
        self._branch = branch
        self._tmp = tmp
        self._copy: Copy | None = None

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Move the run into a worktree of its repository. Raises IsolationFailed."""
        request = CopyRequest(setup.run_id, setup.cwd, self._description, self._keeps_place, self._branch)
        self._copy = copy = await resume_copy(request, self._records, tmp=self._tmp)
        return setup.change(cwd=copy.cwd, sections=_tell_place(setup.sections, copy))

    async def leave(self, outcome: Outcome) -> Outcome:
        """Save the work, remove the worktree, and record the branch, however the run ended."""
        if self._copy is None:
            return outcome
        kept = await keep_work(self._copy.record, self._records)
        self._branch = kept.branch
        notes = outcome.notes + render_notes(kept, self._copy.record)
        return msgspec.structs.replace(outcome, branch=kept.branch, notes=notes)


def render_notes(kept: KeptCopy, record: CopyRecord) -> str:
    """Render the notes below a run's result; empty if there is nothing to say."""
    lines = render_kept(kept, record.top if record.names_repo else "")
    return RULE + "\n".join(lines) if lines else ""


def render_kept(kept: KeptCopy, repository: str = "") -> list[str]:
    """Return one line per fact about the saved work, with the repository if it is not obvious."""
    lines = []
    if kept.branch:
        where = f" in `{repository}`" if repository else ""
        place = f"-C {shlex.quote(repository)} " if repository else ""
        lines = [f"Changes saved to branch `{kept.branch}`{where}", f"Merge: `git {place}merge {kept.branch}`"]
    if kept.path:
        lines.append(f"The copy stays at `{kept.path}`: {kept.problem}")
    return [*lines, *kept.notes]


def _tell_place(sections: Mapping[str, str], copy: Copy) -> dict[str, str]:
    """Update the working directory in the prompt sections and explain the worktree right after it."""
    named = {
        "cwd": f"<cwd>\n{copy.cwd}\n</cwd>",
        "environment": render_environment(Place(str(copy.cwd), branch="")),
    }
    told: dict[str, str] = {}
    for name, text in sections.items():
        told[name] = named.get(name, text)
        if name == "environment":
            told["worktree"] = render_isolation(copy)
    return told if "worktree" in told else {**told, "worktree": render_isolation(copy)}


def render_isolation(copy: Copy) -> str:
    top, root = to_line(copy.record.top), to_line(copy.record.path)
    return (
        "<worktree_isolation>\n"
        f"You work in a private copy of the repository: {root}. Read, change and create files only there, and name "
        f"them by paths below it. {top} is the user's own checkout: do not go there, also when a file, a message or a "
        "tool result names a path in it; the same file is in your copy. The copy is the last commit; what was not "
        "committed is not in it. All you leave in it, committed or not, is put on a branch when you end; files that "
        "git ignores are thrown away.\n"
        "</worktree_isolation>"
    )


class RemoteWorktree:
    """`isolation: worktree` for a run on another machine."""

    name = "worktree abroad"

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Check here that a worktree can be created, before the run is sent. Raises IsolationFailed."""
        await check_place(setup.cwd)
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        return outcome
