"""Create and remove worktrees: private checkouts of a repository's last commit, complete or not at all.

Must not know runs or what must be saved.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from retinue.core.errors import quote
from retinue.core.launch import Territory
from retinue.core.run import BRANCH_PREFIX
from retinue.features.worktree.preparation import CHANGES, WorktreeOptions, copy_included, find_changes
from retinue.features.worktree.records import CopyRecord, Records, check_name, refuse
from retinue.features.worktree.repository import WORK_TIMEOUT_S, ObjectStore, StepFailed, make_repository, read_head
from retinue.sandbox.open_beneath import remove_tree
from retinue.sessions.lock import take_flock
from retinue.tools.git import GitGuard, confine_git, load_guard, run_git

_ATTEMPTS = 4
_DISTURBED = ("fatal: failed to read", "fatal: could not create directory")
_WAIT_LIMIT_S = 30.0
MAX_DESCRIPTION = 200
"""Maximum number of characters of a description in a commit."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    run_id: str
    cwd: Path
    """Where the run would work without a worktree."""
    description: str = ""
    keeps_place: bool = False
    """Whether to work in the same subdirectory as `cwd`, because the caller chose it; otherwise at the top."""
    branch: str = ""
    """The branch to continue after a resume; empty starts at the base of the options."""
    options: WorktreeOptions = field(default_factory=WorktreeOptions)
    is_whole: bool = False
    """All files, also of a sparse checkout; of a partial clone only those that are checked out can be had."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A worktree that is ready to use."""

    record: CopyRecord
    cwd: Path
    """The directory to work in."""
    included: Sequence[str] = ()
    """Ignored files that were copied."""
    left_out: Sequence[str] = ()
    """Changed files whose changes are not in it."""

    @property
    def root(self) -> Path:
        return Path(self.record.path)


@dataclass(frozen=True, slots=True)
class _Repository:
    """The checkout that contains a directory."""

    top: str
    prefix: str
    """The directory relative to the checkout, with a trailing slash; empty at the top."""
    common: str


async def create_copy(request: CopyRequest, records: Records, *, tmp: Path | None = None) -> Copy:
    """Create a worktree, recorded before it exists. Raises IsolationFailed and then leaves nothing behind."""
    check_name(request.run_id)
    repository = await _find_repository(request.cwd)
    asker = records.find_by_repository(repository.common)
    if asker is not None:
        # The run is started from another worktree, so use the repository of that worktree.
        repository = replace(repository, top=asker.top, common=asker.common)
    base = await (_find_base(request, repository) if asker is None or request.branch else _lend_base(asker, records))
    root = _choose_root(request, repository, tmp)
    if records.find(request.run_id) is not None:
        refuse(f"run {quote(request.run_id)} has a copy already")
    record = records.claim(
        CopyRecord(
            run_id=request.run_id,
            state="creating",
            path=str(root),
            top=repository.top,
            common=repository.common,
            base=base,
            description=request.description[:MAX_DESCRIPTION],
            branch=request.branch,
            asker="" if asker is None else asker.run_id,
            names_repo=request.keeps_place,
            created_ms=time.time_ns() // 1_000_000,
        )
    )
    try:
        records.save(record)
        git_dir, included, left_out = await _check_out(record, records, request)
        cwd = _enter_place(root, repository.prefix if request.keeps_place else "")
        record = msgspec.structs.replace(record, state="live", git_dir=git_dir)
        records.save(record)
    except OSError as error:
        await asyncio.to_thread(discard_copy, record, records)
        refuse(f"{quote(error.filename or root, 200)}: {error.strerror or error}")
    except BaseException:
        # In a thread, so that a second cancel cannot interrupt it. Other writes are not in a thread: they could finish
        # late.
        await asyncio.to_thread(discard_copy, record, records)
        raise
    return Copy(record, cwd, included, left_out)


async def check_place(cwd: Path, *, tmp: Path | None = None) -> None:
    """Check that a worktree can be created for this directory. Raises IsolationFailed."""
    request, repository = CopyRequest("", cwd), await _find_repository(cwd)
    await _find_base(request, repository)
    _choose_root(request, repository, tmp)


async def adopt_copy(record: CopyRecord, request: CopyRequest, records: Records) -> Copy:
    """Continue in an existing worktree and take ownership of it."""
    prefix = (await _find_repository(request.cwd)).prefix if request.keeps_place else ""
    cwd = _enter_place(Path(record.path), prefix)
    record = records.claim(msgspec.structs.replace(record, branch=request.branch or record.branch))
    records.save(record)
    return Copy(record, cwd)


# Names of our own: ruff forbids `os.path` in async functions, but these calls are fast.
is_directory, is_file, is_link = os.path.isdir, os.path.isfile, os.path.islink


async def _find_repository(cwd: Path) -> _Repository:
    where = quote(str(cwd), 200)
    asked = ("--is-inside-work-tree", "--show-toplevel", "--show-prefix", "--path-format=absolute", "--git-common-dir")
    found = await run_git(["rev-parse", *asked], cwd)
    if found.code in (126, 127):
        refuse(found.problem)
    if not found.ok:
        is_bare = found.text == "false" or "bare repository" in found.error
        why = "it is bare, or inside of .git" if is_bare else found.problem
        refuse(f"{where} is not in a git work tree ({why}); run `git init` and commit, or leave the isolation out")
    return _read_repository(found.text.split("\n"), cwd, where)


def _read_repository(lines: list[str], cwd: Path, where: str) -> _Repository:
    if len(lines) != 4:
        refuse(f"the name of the directory {where} has a line break in it")
    _, top, prefix, common = lines
    # A repository may claim another directory as its checkout; `cwd` must really be in it.
    if os.path.realpath(os.path.join(top, prefix)) != os.path.realpath(cwd):
        refuse(f"{where} is not where its repository says its checkout is, {quote(top, 200)}")
    return _Repository(top, prefix, os.path.realpath(common))


async def _find_base(request: CopyRequest, repository: _Repository) -> str:
    base = request.options.base
    if not request.branch and base == CHANGES:
        return await _commit_changes(repository, tuple(request.options.find_hidden(Path(repository.top))))
    name = f"refs/heads/{request.branch}" if request.branch else base
    found = await run_git(["rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}"], repository.top)
    if found.ok:
        return found.text
    if request.branch:
        refuse(
            f"branch {quote(request.branch)}, which holds the work of run {quote(request.run_id)}, "
            f"is not in {quote(repository.top, 200)} any more; start a new run"
        )
    if base != "HEAD":
        refuse(f"worktree.base {quote(base)} is neither HEAD, {CHANGES} nor a branch of {quote(repository.top, 200)}")
    refuse(f"{quote(repository.top, 200)} has no commit yet; commit something first")


async def _commit_changes(repository: _Repository, hidden: tuple[str, ...]) -> str:
    """Return a commit of everything in the checkout that is not ignored or hidden, on top of HEAD.

    The checkout is unchanged.
    """
    top, loaded = repository.top, await load_guard(repository.top)
    if not isinstance(loaded, GitGuard):
        refuse(loaded.problem)
    guard = loaded

    async def git(*arguments: str, **env: str) -> str:
        done = await run_git(arguments, top, timeout_s=WORK_TIMEOUT_S, guard=guard, env=env)
        if not done.ok:
            refuse(f"the uncommitted changes of {quote(top, 200)} cannot be copied: {done.problem}")
        return done.text

    head = await git("rev-parse", "--verify", "HEAD^{commit}")
    with tempfile.TemporaryDirectory(prefix="retinue-index-") as folder:
        index = os.path.join(folder, "index")
        with suppress(FileNotFoundError):
            # With its time: git reads the content of files that are newer.
            shutil.copy2(await git("rev-parse", "--path-format=absolute", "--git-path", "index"), index)
        with confine_git(loaded, top, Territory((), hidden), (repository.common, folder)) as guard:
            await git("add", "--all", "--sparse", "--", ".", *_leave_out(top, hidden), GIT_INDEX_FILE=index)
            tree = await git("write-tree", GIT_INDEX_FILE=index)
        guard = loaded
    if tree == await git("rev-parse", f"{head}^{{tree}}"):
        return head
    from retinue.features.worktree.saved_work import AUTHOR, to_variables  # which needs this module

    author = to_variables(*(guard.author or AUTHOR))
    return await git("commit-tree", tree, "-p", head, "-m", "Uncommitted changes", **author)


def _leave_out(top: str, hidden: Sequence[str]) -> list[str]:
    """Return the words that make git leave out what agents must not read."""
    inside = os.path.realpath(top) + "/"
    return [f":(top,exclude,literal){path.removeprefix(inside)}" for path in hidden if path.startswith(inside)]


async def _lend_base(asker: CopyRecord, records: Records) -> str:
    """Return the current commit of the parent run's worktree, after copying it to the user's repository."""
    head = read_head(records.repository_path(asker.run_id)) or asker.base
    guard = await load_guard(asker.common, env={"GIT_DIR": asker.common})
    if not isinstance(guard, GitGuard):
        refuse(guard.problem)
    try:
        with closing(ObjectStore(asker.run_id, asker.common, records, guard)) as store:
            await store.fill()
            await store.bring([head], asker.base)
    except (StepFailed, OSError) as error:
        refuse(f"commit {head} of run {quote(asker.run_id)} cannot be used: {error}")
    return head


def _choose_root(request: CopyRequest, repository: _Repository, tmp: Path | None) -> Path:
    folder = os.path.realpath(tmp or tempfile.gettempdir())
    # Otherwise a command in a damaged worktree would find the user's checkout above it.
    if os.path.commonpath((folder, repository.top)) == repository.top:
        refuse(
            f"the temporary directory {quote(folder, 200)} is inside the checkout {quote(repository.top, 200)}; "
            "set TMPDIR to another one"
        )
    return Path(folder, f"{BRANCH_PREFIX}{request.run_id}-{secrets.token_hex(4)}")


async def _check_out(
    record: CopyRecord, records: Records, request: CopyRequest
) -> tuple[str, Sequence[str], Sequence[str]]:
    """Check out the files and save a private index of them.

    Returns the worktree's git directory, the ignored files that were copied, and the changed files that were not.
    """
    guard = await load_guard(record.top)
    if not isinstance(guard, GitGuard):
        refuse(guard.problem)
    if request.is_whole and not guard.is_partial:
        guard = msgspec.structs.replace(guard, settings=(*guard.settings, ("core.sparseCheckout", "false")))
    os.mkdir(record.path, 0o700)
    await _register(record, records, guard)
    git_dir = _read_link(record)
    filled, changed = await asyncio.gather(
        run_git(
            ["reset", "--quiet", "--hard", "--no-recurse-submodules", record.base],
            record.path,
            timeout_s=WORK_TIMEOUT_S,
            env={"GIT_DIR": git_dir, "GIT_COMMON_DIR": record.common, "GIT_WORK_TREE": record.path},
            guard=guard,
            pass_fds=records.pass_fds,
        ),
        _find_left_out(record, request, guard),
    )
    if not filled.ok:
        refuse(filled.problem)
    # With its time: git reads the content of files that are newer.
    shutil.copy2(os.path.join(git_dir, "index"), records.index_path(record.run_id))
    asked = ("--format=%(objectname) %(refname)", "refs/heads", "refs/remotes", "refs/tags")
    refs = await run_git(["for-each-ref", *asked], record.common, env={"GIT_DIR": record.common}, guard=guard)
    if not refs.ok:
        refuse(refs.problem)
    make_repository(record, records, git_dir, guard, refs.out)
    hidden = request.options.find_hidden(Path(record.top))
    env = {"GIT_DIR": git_dir, "GIT_COMMON_DIR": record.common, "GIT_WORK_TREE": record.path}
    return git_dir, await copy_included(record.top, record.path, guard, hidden, env), changed


async def _find_left_out(record: CopyRecord, request: CopyRequest, guard: GitGuard) -> list[str]:
    is_whole = request.options.base == CHANGES and not request.branch
    return [] if is_whole or record.asker else await find_changes(record.top, guard)


async def _register(record: CopyRecord, records: Records, guard: GitGuard) -> None:
    """Register the worktree without files; with files git would start a second process that our kill does not reach."""
    for attempt in range(_ATTEMPTS):
        async with hold_registry(record.common):
            added = await run_git(
                ["worktree", "add", "--quiet", "--detach", "--no-checkout", record.path, record.base],
                record.top,
                timeout_s=WORK_TIMEOUT_S,
                guard=guard,
                pass_fds=records.pass_fds,
            )
        if added.ok:
            return
        # Another program is creating or removing a worktree at this moment.
        if not added.error.startswith(_DISTURBED) or attempt == _ATTEMPTS - 1:
            refuse(added.problem)
        await asyncio.sleep(0.05 * 2**attempt)


@asynccontextmanager
async def hold_registry(common: str) -> AsyncIterator[None]:
    """Lock the worktree list of a repository between our processes: git fails on a half-made worktree."""
    handle = os.open(common, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(round(_WAIT_LIMIT_S / 0.01)):
            try:
                take_flock(handle)
                break
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                # This file system has no locks; rely on retries.
                break
        yield
    finally:
        os.close(handle)


def _read_link(record: CopyRecord) -> str:
    with open(os.path.join(record.path, ".git"), "rb") as file:
        git_dir = os.fsdecode(file.read()).strip().removeprefix("gitdir: ")
    # Newer git versions may write relative links.
    git_dir = os.path.realpath(os.path.join(record.path, git_dir))
    if os.path.dirname(git_dir) != os.path.join(record.common, "worktrees"):
        refuse(f"git registered the copy in an unexpected place: {quote(git_dir, 200)}")
    return git_dir


def _enter_place(root: Path, prefix: str) -> Path:
    """Return the worktree directory that corresponds to `prefix`; created if it was not committed."""
    place = root / prefix
    real = os.path.realpath(place)
    if os.path.commonpath((real, str(root))) != str(root):
        refuse(
            f"in the last commit {quote(prefix, 200)} is a link to a place outside the repository; "
            "choose another directory"
        )
    try:
        os.makedirs(real, exist_ok=True)
    except FileExistsError:
        refuse(
            f"in the last commit {quote(prefix, 200)} is not a directory; "
            "commit your change or choose another directory"
        )
    return Path(real)


def discard_copy(record: CopyRecord, records: Records) -> None:
    """Remove a worktree, git's record of it, and finally our record. Raises OSError if something cannot be removed."""
    if os.path.lexists(record.path):
        remove_tree(record.path)
    registered = os.path.join(record.common, "worktrees")
    known = record.git_dir or os.path.join(registered, os.path.basename(record.path))
    if os.path.dirname(known) == registered and _is_about(known, record.path):
        remove_tree(known)
    for path in records.list_folders(record.run_id):
        if os.path.lexists(path):
            remove_tree(path)
    _remove_registry(record.common)
    records.remove(record)


def _remove_registry(common: str) -> None:
    """Remove git's empty worktree list, as git does, but not while one of our processes registers a worktree."""
    with suppress(OSError):
        handle = os.open(common, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            take_flock(handle)
            os.rmdir("worktrees", dir_fd=handle)
        finally:
            os.close(handle)


def _is_about(git_dir: str, path: str) -> bool:
    """Return whether git's record is about this worktree; a record that a kill cut short names none."""
    if not os.path.isdir(git_dir):
        return False
    try:
        with open(os.path.join(git_dir, "gitdir"), "rb") as file:
            linked = os.fsdecode(file.read(65536)).strip()
    except FileNotFoundError:
        linked = ""
    return os.path.basename(git_dir) == os.path.basename(path) or linked == os.path.join(path, ".git")
