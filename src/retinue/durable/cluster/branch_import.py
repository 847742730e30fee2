"""Imports the work of a run: its snapshots become a branch of the sender's repository.

The branch contains the agent's own commits, and one more with its uncommitted changes.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from retinue.core.errors import RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.core.run import BRANCH_PREFIX
from retinue.durable.cluster.assignment import unpack_assignment
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.repository import MAX_BUNDLE, Workspace, find_workspace
from retinue.durable.cluster.snapshots import SnapshotLink, apply_chain
from retinue.durable.cluster.workspace_bundle import (
    WorkspaceBundle,
    check_bundle,
    check_bundle_info,
    drop_sent,
    read_bundle,
    release,
)
from retinue.durable.recorded_run import SNAPSHOT
from retinue.features.checkpoint.records import RunNote
from retinue.features.checkpoint.store import CheckpointStore
from retinue.features.worktree.copies import hold_registry
from retinue.features.worktree.saved_work import ABANDONED_REFS, render_message
from retinue.tools.git import GitResult

_LANDING_REFS = "refs/retinue/landing"
_BRANCH = late_pattern(rf"{BRANCH_PREFIX}[A-Za-z0-9][A-Za-z0-9_-]{{0,80}}")
_ATTEMPTS = 5
FindBundle = Callable[[], Awaitable[bytes | None]]
"""Returns the bundle that was sent; it may be large, so it is requested only if needed."""


async def land(
    repo: Path,
    bundle_info: WorkspaceBundle,
    snapshots: Sequence[bytes],
    branch: str,
    *,
    description: str = "",
    find_bundle: FindBundle | None = None,
) -> str:
    """Put the work of a run on a branch and return its name; empty if nothing was changed.

    If the branch belongs to someone else, another name is chosen. With `find_bundle`, the repository need not contain
    what was sent. Raises RetinueError; then nothing is lost and it can be retried.
    """
    check_bundle_info(bundle_info)
    # Also the branch that the run continues, because the user may copy its name from a message.
    if wrong := [name for name in (branch, bundle_info.branch or branch) if not _BRANCH.fullmatch(name)]:
        raise RetinueError(
            f"{quote(wrong[0])} is not a valid branch name for a run; expected {BRANCH_PREFIX} and the run's id: "
            "letters, digits, hyphens and underscores"
        )
    if not snapshots:
        await release(repo, bundle_info)
        return bundle_info.branch
    workspace = await find_workspace(repo)
    if workspace is None:
        raise RetinueError(
            f"the changes of the run cannot be imported: {quote(str(repo), 200)} is not in a git repository; "
            "run `git init` there"
        )
    landing = _BranchImport(workspace, bundle_info, f"{_LANDING_REFS}/{secrets.token_hex(8)}")
    try:
        link = await landing.fetch(snapshots, find_bundle)
        name = await landing.settle(link, branch, description) if link is not None else bundle_info.branch
    finally:
        await asyncio.shield(landing.clear())
    await drop_sent(landing.repository, bundle_info)
    return name


class _BranchImport:
    def __init__(self, workspace: Workspace, bundle_info: WorkspaceBundle, ref: str) -> None:
        self.repository = workspace.open()
        self._workspace = workspace
        self._bundle_info = bundle_info
        self._ref = ref

    async def fetch(self, snapshots: Sequence[bytes], find_bundle: FindBundle | None) -> SnapshotLink | None:
        """Fetch all snapshots into the repository, kept by a temporary ref."""
        commit = self._bundle_info.commit
        if commit:
            if await self.repository.find_commit(commit) != commit:
                await self._take_bundle(None if find_bundle is None else await find_bundle())
            await self.repository.run("update-ref", self._ref, commit)
        return await apply_chain(self.repository, self._ref, commit, snapshots)

    async def _take_bundle(self, bundle: bytes | None) -> None:
        bundle_info = self._bundle_info
        if not bundle:
            remedy = f"; fetch it from {quote(bundle_info.remote, 200)}" if bundle_info.remote else ""
            raise RetinueError(
                f"commit {bundle_info.commit}, with which the run began, is no longer in "
                f"{quote(self._workspace.top, 200)}{remedy}"
            )
        await check_bundle(bundle_info, bundle, MAX_BUNDLE)
        await self.repository.take_bundle(bundle)
        await self.repository.check_whole(bundle_info.commit, bundle_info.known)

    async def settle(self, link: SnapshotLink, branch: str, description: str) -> str:
        """Create the branch at the run's last commit, with its uncommitted changes on top."""
        repository, bundle_info = self.repository, self._bundle_info
        head = link.table.head_commit or bundle_info.commit
        tip = head
        if not head or link.tree != await repository.find_tree(head):
            parents, author = (head,) if head else (), self._workspace.guard.author
            # Importing again, for example after a crash, gives the same commit and so the same branch.
            tip = await repository.commit(link.tree, parents, render_message(description), author, date=link.date)
        name = bundle_info.branch
        if tip != bundle_info.commit:
            name = await self._save_branch(branch, tip)
        await self._save_others(link, tip, branch)
        return name

    async def _save_branch(self, wanted: str, tip: str) -> str:
        """Create a new branch, or move the run's own forward; other branches are never touched."""
        own = self._bundle_info.branch
        for name in (own, wanted) if own.startswith(f"{wanted}-") else (wanted,):
            found = await self.repository.find_commit(f"refs/heads/{name}")
            if found == tip or (found and name == own and await self._move_branch(name, found, tip)):
                return name
        now_ms = time.time_ns() // 1_000_000
        done = GitResult(1)
        for number in range(_ATTEMPTS):
            name = f"{wanted}-{now_ms + number - 1}" if number else wanted
            # The empty old value: only if there is no such branch.
            done = await self.repository.ask("update-ref", f"refs/heads/{name}", tip, "")
            if done.ok:
                return name
        raise RetinueError(f"cannot create branch {quote(wanted)} in {quote(self._workspace.top, 200)}: {done.problem}")

    async def _move_branch(self, name: str, before: str, tip: str) -> bool:
        repository = self.repository
        async with hold_registry(self._workspace.common):
            used = await repository.ask("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{name}")
        if used.text or not (await repository.ask("merge-base", "--is-ancestor", before, tip)).ok:
            return False
        return (await repository.ask("update-ref", f"refs/heads/{name}", tip, before)).ok

    async def _save_others(self, link: SnapshotLink, tip: str, branch: str) -> None:
        """Store other commits of the run: branches of its children as branches, the rest under hidden refs."""
        known = [sha for sha in (tip, self._bundle_info.commit) if sha]
        for name, sha in link.table.refs.items():
            if not (await self.repository.run("rev-list", "--max-count=1", sha, "--not", *known)).text:
                continue
            short = name.removeprefix("refs/heads/")
            if _BRANCH.fullmatch(short):
                await self._save_branch(short, sha)
            else:
                kept = f"{ABANDONED_REFS}/{branch.removeprefix(BRANCH_PREFIX)}/{sha[:12]}"
                await self.repository.run("update-ref", kept, sha)

    async def clear(self) -> None:
        """Delete the temporary ref; the work is on its branch, or still where it came from."""
        await self.repository.ask("update-ref", "-d", self._ref)


async def fetch_work(database: Database, run: str, repo: Path, store: CheckpointStore) -> str:
    """Put the changes of a finished run on a branch and return its name; empty if it changed nothing.

    `store` are the checkpoints of `repo`: a run that was sent from there can be undone there. If a run had several
    attempts, the last one has all changes. Raises RetinueError; then it can be retried.
    """
    rows = await database.fetch(
        "SELECT assignment::text, finished IS NOT NULL FROM retinue.runs WHERE %s IN (id, run)"
        " ORDER BY attempt DESC LIMIT 1",
        run,
    )
    if not rows:
        raise RetinueError(f"unknown run {quote(run)} in the database {database.describe()}; perhaps it was pruned")
    if not rows[0][1]:
        raise RetinueError(f"run {quote(run)} has not ended; its changes are imported automatically when it ends")
    try:
        assignment = unpack_assignment(rows[0][0])
        bundle_info = msgspec.convert(assignment.parcel, type=WorkspaceBundle)
    except msgspec.DecodeError as error:
        raise RetinueError(f"run {quote(run)} was sent by another version of retinue: {error}; use that one") from error
    states = await database.fetch(
        "SELECT data FROM retinue.records WHERE run = %s AND kind = %s AND path = %s ORDER BY seq",
        assignment.run_id,
        SNAPSHOT,
        str(assignment.attempt),
    )
    branch = await land(
        repo,
        bundle_info,
        [bytes(data) for (data,) in states],
        f"{BRANCH_PREFIX}{assignment.run_id}",
        description=assignment.description,
        find_bundle=partial(read_bundle, database, assignment.digest),
    )
    sent = [each for each in store.read_records() if isinstance(each, RunNote) and each.run == assignment.run_id]
    if sent and branch and bundle_info.commit:
        await store.note_branch(assignment.run_id, sent[-1].session, branch, bundle_info.commit)
        await store.keep(sent[-1].session)
    # A role that may only read gets the changes too; they stay in the database longer.
    with suppress(RetinueError):
        await database.fetch("UPDATE retinue.runs SET home = now() WHERE id = %s", assignment.id)
    return branch
