"""Opens merge queues: with the settings of a folder, its sandbox, and the runs that made the branches."""

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import BranchesMerged
from retinue.core.launch import ANYWHERE, Territory
from retinue.core.merge_report import BranchState, LandRequest, MergeReport, MergeStep
from retinue.core.pattern import late_pattern
from retinue.core.receipt import CommandResult
from retinue.core.redaction import Redactor, collect_secrets
from retinue.core.run import BRANCH_PREFIX, Question
from retinue.engine.clock import make_run_id
from retinue.features.commands import run_commands_in
from retinue.features.merges.journal import MergeJournal, hold_queue, read_state
from retinue.features.merges.queue import AuthorRequest, MergeQueue
from retinue.features.merges.scratch import Scratch
from retinue.features.merges.target import MergeTarget, open_target
from retinue.features.sandbox import open_machine
from retinue.sandbox.probe import Machine
from retinue.sessions.tree import find_main
from retinue.settings.config import Config, choose_shell, find_refusal, load_config, read_worktree_options
from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths, find_session_dir
from retinue.settings.request import Request, SessionWish
from retinue.tools.path_guard import find_fault
from retinue.tools.registry import ToolOptions, build_tools

if TYPE_CHECKING:
    from retinue.app.open_session import OpenSession

KEY = "landing.verify"
_BRANCH = late_pattern(rf"{BRANCH_PREFIX}([A-Za-z0-9_-]+?)(-\d{{13}})?")


@dataclass(frozen=True)
class BranchAuthors:
    """Finds the run that made a branch in the sessions of a folder, and resumes it."""

    directory: Path
    """Where the sessions of the folder are."""
    resume: Callable[[str, str, str], Awaitable[str]]
    """Takes a session file, a run id and a task; returns what went wrong. Raises RetinueError if it cannot work."""
    is_here: Callable[[str], bool] = lambda run_id: False
    """Whether a run belongs to the open session."""

    async def find_obstacle(self, branch: str) -> str:
        run_id = find_run_id(branch)
        if not run_id:
            return "it is not the branch of an agent's run"
        known = self.is_here(run_id) or self._find_session(run_id)
        return "" if known else f"run {run_id} is in no session of this folder"

    async def ask(self, author_request: AuthorRequest) -> str:
        run_id = find_run_id(author_request.branch)
        path = "" if self.is_here(run_id) else self._find_session(run_id)
        return await self.resume(path, run_id, render_author_request(author_request))

    def _find_session(self, run_id: str) -> str:
        for depth in ("*", "*/*", "*/*/*"):
            for found in sorted(self.directory.glob(f"{depth}/{run_id}/session.jsonl")):
                return str(find_main(found))
        return ""


def find_run_id(branch: str) -> str:
    """Return the run that a branch is named after; empty if it is not the branch of a run."""
    found = _BRANCH.fullmatch(branch)
    return found[1] if found else ""


def render_author_request(author_request: AuthorRequest) -> str:
    """Return the task of an author whose branch stayed behind."""
    refused = author_request.refused
    text = f"Your branch {author_request.branch} could not land on {author_request.target}: {refused.text}\n\n"
    text += f"{refused.output}\n\nYour working copy is now {author_request.merge[:12]}, your branch merged with the "
    text += f"newest {author_request.target}. "
    if author_request.paths:
        text += "These files have conflict marks (<<<<<<< yours, >>>>>>> theirs): " + ", ".join(author_request.paths)
        text += ". Edit them so that both changes keep their meaning, and remove the marks. "
    else:
        text += "Change it so that the check passes. "
    return text + "Keep what the others have changed. Whatever is in your copy when you end is tried again."


@dataclass(frozen=True)
class Landing:
    """Opens merge queues on the repository of one folder."""

    config: Config
    tools: ToolOptions
    redact: Callable[[str], str]
    authors: BranchAuthors
    holder: str
    """What other queues are told that wait for us."""
    territory: Territory = ANYWHERE
    """Where files may be changed."""

    async def run(self, asked: LandRequest, tell: Callable[[MergeStep], None]) -> MergeReport:
        """Land branches. Raises RetinueError."""
        config, own = self.config, self.config.crew.settings.landing
        if asked.verifies and (problem := find_problem(config)):
            raise UsageError(problem)
        target = await open_target(config.paths.cwd, asked.onto)
        async with self._open_journal(target, asked, tell) as (journal, fds):
            names = list(asked.branches)
            if asked.takes_all or not names:
                found, began = await target.list_agent_branches(), journal.state.began
                unfinished = began.target if began is not None and journal.state.is_unfinished else ""
                if not asked.takes_all and unfinished != target.name:
                    listed = f"; branches of agents: {', '.join(found)}" if found else ""
                    listed += f"; to continue an interrupted queue, use --onto {unfinished}" if unfinished else ""
                    raise UsageError(f"name the branches to land, or use --all{listed}")
                names += journal.state.open if unfinished == target.name else []
                names += found if asked.takes_all else []
            with closing(self._open_scratch(target)) as scratch:
                await scratch.clear()
                queue = MergeQueue(
                    replace(target, pass_fds=fds),
                    journal,
                    check=scratch.check if asked.verifies else None,
                    commands=own.verify,
                    authors=self.authors if asked.verifies else None,
                    max_attempts=own.max_attempts,
                    is_dry=asked.is_dry,
                    find_fault=lambda paths: find_fault(os.path.realpath(target.top), paths, self.territory),
                    tell=tell,
                )
                report = await queue.run(names)
        if not names:
            report = structs.replace(report, notes=("nothing to land: no branch of an agent is waiting", *report.notes))
        if asked.verifies and target.guard.is_sparse and target.guard.is_partial:
            note = "checked only with the files of this sparse checkout: the others are not in this partial clone"
            report = structs.replace(report, notes=(*report.notes, note))
        return report

    @asynccontextmanager
    async def _open_journal(
        self, target: MergeTarget, asked: LandRequest, tell: Callable[[MergeStep], None]
    ) -> AsyncIterator[tuple[MergeJournal, tuple[int, ...]]]:
        """Hold the queue of the repository; a dry run has a journal of its own."""
        if not asked.is_dry:
            place = find_folder(self.config), target.common, self.holder
            async with hold_queue(*place, say=lambda text: tell(MergeStep("note", (), text))) as (journal, lock):
                yield journal, (lock,)
            return
        with tempfile.TemporaryDirectory(prefix="retinue-landing-") as folder:
            journal = MergeJournal(Path(folder, "journal"))
            try:
                yield journal, ()
            finally:
                journal.close()

    def _open_scratch(self, target: MergeTarget) -> Scratch:
        config = self.config
        shell = build_tools(choose_shell(self.tools, config.paths, config.loaded.settings), ["bash"])["bash"]

        async def check(place: Path) -> list[CommandResult]:
            own = config.crew.settings
            return await run_commands_in(
                place, own.landing.verify, shell, config.boundaries, timeout_s=own.verify_seconds, redact=self.redact
            )

        project = config.paths.project
        place = project if project.is_relative_to(target.top) else Path(target.top)
        return Scratch(
            config.paths.copies_dir, place, structs.replace(read_worktree_options(config), refusal=""), check
        )


def find_problem(config: Config) -> str:
    """Return why nothing can be verified; empty if it can."""
    verify = config.crew.settings.landing.verify
    if not verify:
        return (
            f"{KEY} is not set: set it in subagents.json to the shell commands that must pass before a branch lands, "
            "or use --no-verify to land what merges cleanly"
        )
    return find_refusal(config, KEY, list(verify), "nothing lands without it")


async def list_branches(config: Config) -> list[BranchState]:
    """Return the branches of agents that have not landed, and all of the last merge queue. Raises RetinueError."""
    target = await open_target(config.paths.cwd)
    state = read_state(find_folder(config), target.common)
    found = [BranchState(name, "landed") for name in state.landed]
    found += [BranchState(name, "behind", left.refused.text) for name, left in state.left.items()]
    known = {*state.landed, *state.left}
    word: Literal["waiting", "checking"] = "checking" if state.is_unfinished else "waiting"
    found += [BranchState(name, word) for name in state.waiting if name not in known]
    known.update(state.branches)
    return found + [BranchState(name, "waiting") for name in await target.list_agent_branches() if name not in known]


def find_folder(config: Config) -> Path:
    """Return where the journals of merge queues are."""
    return config.paths.own_dir / "landing"


async def land(
    asked: LandRequest, request: Request, *, say: Callable[[str], None], tell: Callable[[MergeStep], None]
) -> MergeReport:
    """Land branches of the repository of the working directory, without an open session. Raises RetinueError."""
    environment, machines = os.environ, list[Machine]()
    paths = find_paths(".", environment)
    loaded = load_settings(paths, environment, approve=request.approve)

    def find_machine() -> Machine:
        machines.append(open_machine())
        return machines[-1]

    config = load_config(paths, loaded, request, environment, flags={}, find_machine=find_machine, tell=say)
    for problem in (*loaded.diagnostics, *config.diagnostics):
        say(problem.message)
    if loaded.trust.notice:
        say(loaded.trust.notice)
    directory = find_session_dir(
        paths, environment, flag=request.session.directory or None, setting=loaded.settings.session_dir
    )
    authors = BranchAuthors(directory, partial(resume_author, request))
    redact = Redactor(collect_secrets(environment)).redact
    landing = Landing(config, ToolOptions(), redact, authors, "retinue land")
    try:
        return await landing.run(asked, tell)
    finally:
        for machine in machines:
            machine.close()


async def resume_author(request: Request, path: str, run_id: str, task: str) -> str:
    """Resume a run of a stored session and wait for it; return what went wrong. Raises RetinueError."""
    from retinue.app.retinue import Retinue

    wish = SessionWish("named", path, request.session.directory)
    async with Retinue(request=structs.replace(request, session=wish)) as crew:
        try:
            return await crew.ask_author(run_id, task)
        finally:
            # Other runs of the session are not ours to end, and this one may go on elsewhere if we are interrupted.
            crew.session_runs.leave(keeps_all=True)


async def land_in_session(here: "OpenSession", asked: LandRequest, *, is_agent: bool = False) -> MergeReport:
    """Land branches from an open session and publish each step; an agent may need the user's consent.

    Raises RetinueError.
    """
    config, parts = here.config, here.parts
    if is_agent and not asked.is_dry and config.crew.settings.landing.mode != "auto":
        await _ask_user(here, asked)
    session = parts.session

    async def resume(path: str, run_id: str, task: str) -> str:
        if path:
            return await resume_author(parts.host.request, path, run_id, task)
        return await (await here.need_subagents()).ask_author(run_id, task)

    def is_here(run_id: str) -> bool:
        return here.subagents is not None and here.subagents.manager.find(run_id) is not None

    directory = find_session_dir(
        config.paths,
        parts.host.environment,
        flag=parts.host.request.session.directory or None,
        setting=config.loaded.settings.session_dir,
    )
    authors = BranchAuthors(directory, resume, is_here)
    redact, holder = parts.host.redactor.redact, f"session {session.id}"

    def tell(step: MergeStep) -> None:
        here.main.bus.publish(BranchesMerged(run_id=parts.run_id, step=step))

    # Through a branch an agent must not change what it could not change itself.
    territory = config.boundaries.find_territory(config.paths.cwd, readonly=False) if is_agent else ANYWHERE
    return await Landing(config, parts.tool_options, redact, authors, holder, territory).run(asked, tell)


async def _ask_user(here: "OpenSession", asked: LandRequest) -> None:
    """Ask whether an agent may land branches. Raises RetinueError if not."""
    questions, names = here.parts.host.questions, ", ".join(asked.branches) or "all branches of agents"
    hint = f"a person can run: retinue land {' '.join(asked.branches) or '--all'}"
    if not questions.has_frontend:
        raise RetinueError(f"landing.mode is ask, and nobody is here to answer; {hint}")
    question = Question(
        id=make_run_id(),
        run_id=here.parts.run_id,
        kind="confirm",
        title="Land the branches of agents?",
        text=f"Merge into {asked.onto or 'the current branch'}, each verified: {names}",
        tool="land_branches",
    )
    if await questions.ask(question) != "allow":
        raise RetinueError(f"the user did not allow it; {hint}")
