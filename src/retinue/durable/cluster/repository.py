"""A git repository for sending workspaces: hardened git calls, bundles, addresses of remotes."""

import asyncio
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from retinue.core.errors import RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.features.worktree.copies import is_directory
from retinue.features.worktree.repository import WORK_TIMEOUT_S
from retinue.features.worktree.saved_work import AUTHOR, to_variables
from retinue.sandbox.stubs import is_stub
from retinue.tools.git import GitGuard, GitResult, load_guard, run_git

MAX_BUNDLE = 256 * 1024 * 1024
"""Maximum size of one bundle in bytes."""
SHA = late_pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MEGABYTE = 1024 * 1024
_PLACES = (
    ("--show-toplevel",),
    ("--show-prefix",),
    ("--absolute-git-dir",),
    ("--path-format=absolute", "--git-common-dir"),
)
"""Arguments for `rev-parse` about a checkout."""
_TOO_MUCH = 125
# For repositories that we created: no configuration needs to be neutralised, and the user's must not apply.
OWN = GitGuard(
    (
        ("core.excludesFile", os.devnull),
        ("core.attributesFile", os.devnull),
        ("core.autocrlf", "false"),
        ("core.logAllRefUpdates", "false"),
    )
)
# Everything worth keeping is sent to the database, so syncing is unnecessary.
FLEETING = GitGuard((*OWN.settings, ("core.fsync", "none")))


class BundleTooLarge(RetinueError):
    """Raised when a bundle would exceed the size limit."""


@dataclass(frozen=True, slots=True)
class Repository:
    """Explicit paths for git, so that it never searches from a directory."""

    git_dir: str
    work_tree: str = ""
    index: str = ""
    common: str = ""
    """The git directory shared with other worktrees, if it is a different one."""
    guard: GitGuard = field(default=OWN)

    async def ask(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = WORK_TIMEOUT_S,
        max_output: int = 64 * _MEGABYTE,
        pass_fds: tuple[int, ...] = (),
    ) -> GitResult:
        """Run git; a failure is returned, not raised."""
        places = {
            "GIT_DIR": self.git_dir,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
            "GIT_COMMON_DIR": self.common,
        }
        given = {name: value for name, value in places.items() if value} | dict(env or {})
        cwd = self.work_tree or self.git_dir
        return await run_git(
            arguments,
            cwd,
            timeout_s=timeout_s,
            env=given,
            guard=self.guard,
            pass_fds=pass_fds,
            max_output=max_output,
        )

    async def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> GitResult:
        """Run git. Raises RetinueError if it fails."""
        done = await self.ask(*arguments, env=env)
        if not done.ok:
            raise RetinueError(
                f"git {arguments[0]} failed in {quote(self.work_tree or self.git_dir, 200)}: {done.problem}"
            )
        return done

    async def find_commit(self, name: str) -> str:
        """Return the id of an existing commit, else an empty string."""
        found = await self.ask("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return found.text if found.ok else ""

    async def find_tree(self, commit: str) -> str:
        return (await self.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")).text

    async def commit(
        self, tree: str, parents: Sequence[str], message: str, author: tuple[str, str] | None, *, date: str = ""
    ) -> str:
        """Create a commit in the author's name; in ours if there is none or git rejects it.

        With a date the commit id is reproducible.
        """
        times = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
        above = [part for sha in dict.fromkeys(parents) for part in ("-p", sha)]
        arguments = ["commit-tree", tree, *above, "-m", message]
        if author is not None:
            done = await self.ask(*arguments, env=to_variables(*author) | times)
            if done.ok:
                return done.text
        return (await self.run(*arguments, env=to_variables(*AUTHOR) | times)).text

    async def write_tree(self, before: str) -> tuple[str, list[str]]:
        """Write the index as a tree; also returns the paths that have become nested repositories.

        Placeholder files that our sandbox creates while commands run are left out.
        """
        tree = (await self.run("write-tree")).text
        if tree == before:
            return tree, []
        rows = await self._list_new(before, tree)
        if stubs := [path for mode, path in rows if mode == "100644" and is_stub(os.path.join(self.work_tree, path))]:
            await self.run("update-index", "--force-remove", "--", *stubs)
            tree = (await self.run("write-tree")).text
        return tree, [path for mode, path in rows if mode == "160000"]

    async def _list_new(self, before: str, tree: str) -> list[tuple[str, str]]:
        """Return mode and path of everything that is new or has changed its kind."""
        if not before:
            listed = (await self.run("ls-tree", "-r", "-z", tree)).fields
            return [(row[:6], row.partition("\t")[2]) for row in listed]
        told = await self.run("diff", "--raw", "-z", "--no-renames", "--ignore-submodules=none", before, tree)
        pairs = [(row.split(), path) for row, path in zip(told.fields[::2], told.fields[1::2], strict=False)]
        return [(row[1], path) for row, path in pairs if row[0][1:] != row[1]]

    async def make_bundle(self, ref: str, without: Sequence[str], max_bytes: int) -> bytes:
        """Bundle everything reachable from a ref but not from other commits. Raises BundleTooLarge."""
        scope = (ref, *(f"^{sha}" for sha in without))
        made = await self.ask("bundle", "create", "--quiet", "-", *scope, max_output=max_bytes)
        if made.ok:
            return made.out
        if made.code != _TOO_MUCH:
            raise RetinueError(f"git bundle failed in {quote(self.work_tree or self.git_dir, 200)}: {made.problem}")
        measured = await self.ask("rev-list", "--objects", "--disk-usage", *scope)
        size = int(measured.text) if measured.ok and measured.text.isdigit() else 0
        told = f"about {render_size(size)}" if size > max_bytes else f"more than {render_size(max_bytes)}"
        raise BundleTooLarge(f"it is {told}, and at most {render_size(max_bytes)} can be sent with a run")

    async def take_bundle(self, data: bytes) -> str:
        """Add a bundle's objects to the repository and return its commit. Raises RetinueError.

        The commits that it is based on MUST be reachable from a ref.
        """
        # An unnamed file, so that nothing is left behind after a kill.
        with tempfile.TemporaryFile() as file:
            handle = file.fileno()
            await asyncio.to_thread(_write, handle, data)
            taken = await self.ask("bundle", "unbundle", f"/dev/fd/{handle}", pass_fds=(handle,))
        if not taken.ok:
            raise RetinueError(f"git cannot read the bundle that came with the run: {taken.problem}")
        rows = taken.text.split("\n")
        if len(rows) != 1 or not SHA.fullmatch(sha := rows[0].partition(" ")[0]):
            raise RetinueError(f"the bundle that came with the run names {len(rows)} commits; expected one")
        return sha

    async def check_whole(self, commit: str, known: Sequence[str], others: Sequence[str] = ()) -> None:
        """Raise RetinueError unless everything that the commits need beyond the known ones is there."""
        if known:
            known = ("--not", *known)
        done = await self.ask("rev-list", "--objects", "--quiet", commit, *others, *known)
        if not done.ok:
            raise RetinueError(f"commit {commit} is incomplete: {done.problem}")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The user's checkout that contains a directory."""

    top: str
    prefix: str
    """Path of the directory inside the checkout; ends with a slash, or is empty."""
    git_dir: str
    common: str
    guard: GitGuard

    def open(self, index: str = "") -> Repository:
        """Open its repository; with a separate index, the user's is not touched."""
        common = self.common if self.common != self.git_dir else ""
        return Repository(self.git_dir, self.top, index, common, self.guard)


async def find_workspace(cwd: Path) -> Workspace | None:
    """Find the checkout around a directory; None without a repository. Raises RetinueError if git fails."""
    if not is_directory(str(cwd)):
        raise RetinueError(f"{quote(str(cwd), 200)} is not a directory")
    found = await _ask_places(cwd)
    for each in found:
        if "not a git repository (or any" in each.error:
            return None
        if not each.ok:
            raise RetinueError(f"{quote(str(cwd), 200)} cannot be sent with a run: {each.problem}")
    top, prefix, git_dir, common = _resolve_places(found, cwd)
    guard = await load_guard(top)
    if not isinstance(guard, GitGuard):
        raise RetinueError(f"git config failed in {quote(top, 200)}: {guard.problem}")
    return Workspace(top, prefix, git_dir, common, guard)


async def _ask_places(cwd: Path) -> list[GitResult]:
    """Ask git about a directory's checkout: in one call, or one call per question."""
    together = await run_git(["rev-parse", *(word for words in _PLACES for word in words)], cwd)
    # More lines than questions: a directory name contains line breaks.
    if not together.ok or together.out.count(b"\n") == len(_PLACES):
        return [together]
    return [await run_git(["rev-parse", *words], cwd) for words in _PLACES]


def _resolve_places(answers: Sequence[GitResult], cwd: Path) -> tuple[str, str, str, str]:
    together = len(answers) == 1
    top, prefix, git_dir, common = answers[0].text.split("\n") if together else [each.text for each in answers]
    # A repository may claim another directory as its checkout.
    if os.path.realpath(os.path.join(top, prefix)) != os.path.realpath(cwd):
        raise RetinueError(
            f"{quote(str(cwd), 200)} is not where its repository says its checkout is, {quote(top, 200)}; "
            "correct core.worktree in its configuration"
        )
    return top, prefix, os.path.realpath(git_dir), os.path.realpath(common)


def render_size(size: int) -> str:
    return f"{size / _MEGABYTE:,.0f} MB" if size >= _MEGABYTE else f"{size / 1024:,.1f} kB"


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    os.lseek(handle, 0, os.SEEK_SET)


MAX_ADDRESS = 2048
_SCHEMES = {"https", "http", "ssh", "git", "git+ssh", "ssh+git"}
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[[0-9A-Fa-f:.]+\])"
_USER = r"[A-Za-z0-9_.~][A-Za-z0-9_.~-]*"
_SCP = late_pattern(rf"(?![A-Za-z]:)(?:{_USER}@)?{_HOST}:[^:\\-][^\\]*")
_CLEAN = late_pattern(rf"(?:{_USER}@)?{_HOST}(?::[0-9]{{1,5}})?")
_SECRET = late_pattern(r"(://)[^/@\s]*@")


def clean_address(address: str) -> str:
    """Remove user names and passwords from an address; empty if it is local or unusual.

    The user name of ssh is kept: it is not a secret and is required.
    """
    if len(address) > MAX_ADDRESS or not address.isprintable() or " " in address or not address.isascii():
        return ""
    if "://" not in address:
        # As in `git@host:path`; with a slash before the colon, or without a colon, it is a path.
        return address if _SCP.fullmatch(address) and "::" not in address else ""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    # A query string may be a secret too.
    if parts.scheme not in _SCHEMES or "?" in address or "#" in address or not parts.path.strip("/"):
        return ""
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    netloc = f"{name}@{host}" if name and "ssh" in parts.scheme else host
    return f"{parts.scheme}://{netloc}{parts.path}" if _CLEAN.fullmatch(netloc) else ""


def check_address(address: str) -> None:
    """Raise RetinueError unless git may be given this address."""
    if not address or clean_address(address) != address:
        raise RetinueError(
            f"the run names a remote that cannot be used, {quote(hide_secrets(address), 200)}; expected "
            "an https, http, ssh or git address without a password"
        )


def hide_secrets(text: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return _SECRET.sub(r"\1", text)


def list_addresses(entries: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return each configured remote with its effective address, `origin` first."""
    found: dict[str, str] = {}
    rewrites: dict[str, str] = {}
    for _, key, value in entries:
        section, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        if section == "remote" and last == "url":
            # Git fetches from the first of several addresses.
            found.setdefault(name, value)
        elif section == "url" and last == "insteadof" and value:
            rewrites[value] = name
    ordered = sorted(found, key=lambda name: (name != "origin", name))
    return {name: _rewrite(found[name], rewrites) for name in ordered}


def _rewrite(address: str, rewrites: Mapping[str, str]) -> str:
    fitting = [start for start in rewrites if address.startswith(start)]
    if not fitting:
        return address
    start = max(fitting, key=len)
    return rewrites[start] + address[len(start) :]
