"""Runs git safely in untrusted repositories: no hook, filter, pager, helper or editor is started.

Programs named in a repository's own configuration are found and disabled; from the user's configuration only plain data
is used. This file must not know what git is used for.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.environment import GIT, select
from retinue.core.errors import quote
from retinue.core.launch import SpawnThread, Territory
from retinue.sandbox.gitdirs import is_repository, read_git_dirs, read_worktree
from retinue.tools.process import ProcessCommand, run_process
from retinue.tools.process_tree import SYSTEM_DIRS, Tree, TreeProbe, find_program

PROBE_TIMEOUT_S = 5.0
_MAX_OUTPUT = 64 * 1024 * 1024
_MAX_ERROR = 16 * 1024
# Builtin commands that need no editor and no network. An alias cannot replace a builtin. `bundle` and `repack` start
# only git itself, and that process ends when its pipe closes.
_COMMANDS = frozenset(
    {
        *("add", "branch", "bundle", "cat-file", "check-attr", "check-ignore", "commit-tree", "config", "diff"),
        *("diff-files", "diff-tree", "for-each-ref", "index-pack", "init", "log", "ls-files", "ls-tree", "merge-base"),
        *(
            "merge-tree",
            "mktree",
            "pack-objects",
            "read-tree",
            "repack",
            "reset",
            "rev-list",
            "rev-parse",
            "show",
            "status",
        ),
        *("symbolic-ref", "unpack-objects", "update-index", "update-ref", "version", "worktree", "write-tree"),
    }
)
# These commands read file contents, so filters would run, merge them, so a driver would, or show diffs, so a diff
# program could run.
_TOUCHING = frozenset(
    {
        *("add", "diff", "diff-files", "log", "ls-files", "merge-tree", "read-tree", "reset", "show", "status"),
        *("update-index", "worktree"),
    }
)
_REFERRING = ("symbolic-ref -m", "update-ref ", "worktree add")
_SHOWING = frozenset({"diff", "log", "show"})
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
_SETTINGS = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", ":"),
    ("core.askPass", "false"),
    ("core.sshCommand", "false"),
    ("credential.helper", ""),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
    ("status.submoduleSummary", "false"),
    # Child processes would survive when we kill git.
    ("checkout.workers", "1"),
    # The content of the files counts, not what a cache says about them.
    ("core.untrackedCache", "false"),
    ("core.checkStat", "default"),
    ("core.trustctime", "true"),
    ("core.splitIndex", "false"),
    ("core.safecrlf", "false"),
    # A file is deleted after it was committed, so the commit must be on disk.
    ("core.fsync", "committed,reference"),
    ("core.fsyncMethod", "fsync"),
    ("i18n.commitEncoding", "UTF-8"),
    ("status.renames", "false"),
    ("color.ui", "false"),
)
# Settings that may name a program, and the value that disables it.
_PROGRAMS = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("merge", "driver"): "false",
    ("credential", "helper"): "",
    ("gpg", "program"): "false",
    ("gpg", "defaultkeycommand"): "false",
    ("hook", "command"): "true",
    ("submodule", "update"): "none",
    ("core", "gitproxy"): "",
    ("core", "alternaterefscommand"): "true",
}
# Settings taken from the user's configuration: data, never a program.
_DATA = frozenset({"core.autocrlf", "core.eol", "core.excludesfile", "core.attributesfile", "safe.directory"})
_NAMES = ("author", "committer", "user")
# For a fetch: how to reach other machines. Taken from the user's or system's configuration, never from a repository's.
_REACH = ("credential", "http", "url")
_REACH_VARIABLES = (
    *("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
_TRANSPORTS = "https:http:ssh:git"
FETCH_TIMEOUT_S = 600.0


class GitResult(Struct, frozen=True):
    code: int
    out: bytes = b""
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """The output without the final newline."""
        return os.fsdecode(self.out).removesuffix("\n")

    @property
    def fields(self) -> list[str]:
        """The output split into NUL-terminated fields."""
        return os.fsdecode(self.out).split("\0")[:-1]

    @property
    def problem(self) -> str:
        """The reason for the failure in one line."""
        lines = [line.strip() for line in self.error.splitlines() if line.strip()]
        # Warnings and hints come before or after it; the reason is the line with which git aborted.
        told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return quote(told[0], 300)[1:-1] if told else f"git ended with status {self.code}"


class GitGuard(Struct, frozen=True):
    """Settings that disable a repository's programs, and facts read from its configuration."""

    settings: tuple[tuple[str, str], ...] = ()
    author: tuple[str, str] | None = None
    """Name and email address that the user has configured."""
    filters: frozenset[str] = frozenset()
    """Filters that are configured but are not run."""
    is_sparse: bool = False
    """Only some of the files are checked out."""
    is_partial: bool = False
    """A partial clone: what is not checked out may not be here, and is not fetched."""
    has_hooks_path: bool = False
    """core.hooksPath is set, so the hooks are not in the default place."""
    spawn_thread: SpawnThread | None = None
    """The thread that must start git, because it limits what git can read and write."""


async def run_git(
    args: Sequence[str],
    cwd: str | os.PathLike[str],
    *,
    timeout_s: float = PROBE_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    guard: GitGuard | None = None,
    pass_fds: tuple[int, ...] = (),
    max_output: int = _MAX_OUTPUT,
    stdin: int = subprocess.DEVNULL,
) -> GitResult:
    """Run one git command. Every failure is returned as a result. GIT_ variables come only from `env`.

    Without a guard, one is loaded if the command needs it; load it once if you make several calls. Output beyond
    `max_output` ends the command with status 125.
    """
    if args[0] not in _COMMANDS:
        raise ValueError(f"git command {quote(args[0])} is not one that is known to start no other program")
    if link := _find_link(args, os.fspath(cwd), env or {}):
        return GitResult(128, error=f"error: {quote(link, 200)} is a link; git would write elsewhere")
    if guard is None and args[0] in _TOUCHING:
        loaded = await load_guard(cwd, env=env)
        if isinstance(loaded, GitResult):
            return loaded
        guard = loaded
    shown = ("--no-ext-diff", "--no-textconv") if args[0] in _SHOWING else ()
    settings = (*_SETTINGS, *(guard.settings if guard is not None else ()))
    given = {**_environment(settings), **_pin_common(cwd, env or {}), **(env or {})}
    words = (args[0], *shown, *args[1:])
    thread = None if guard is None else guard.spawn_thread
    return await _call(
        words,
        os.fspath(cwd),
        given,
        timeout_s,
        pass_fds=pass_fds,
        max_output=max_output,
        stdin=stdin,
        spawn_thread=thread,
    )


async def fetch_git(
    url: str, refspecs: Sequence[str], git_dir: str, *, timeout_s: float = FETCH_TIMEOUT_S
) -> GitResult:
    """Fetch from another machine into a bare repository, whose configuration MUST be written by us.

    Program settings (ssh, credential helpers) come from the user's and the system's configuration. The user is never
    prompted.
    """
    listed = await list_config(git_dir, env={"GIT_DIR": git_dir})
    if isinstance(listed, GitResult):
        return listed
    own = [(key, value) for scope, key, value in listed if scope in ("system", "global")]
    ssh = [value for key, value in own if key == "core.sshcommand"]
    reach = [(key, value) for key, value in own if key.partition(".")[0] in _REACH]
    settings = (*_SETTINGS, ("core.sshCommand", ssh[-1] if ssh else "ssh -oBatchMode=yes"), *reach)
    given = _environment(settings) | {"GIT_DIR": git_dir, "GIT_ALLOW_PROTOCOL": _TRANSPORTS}
    del given["GIT_SSH_COMMAND"]
    given |= {name: os.environ[name] for name in _REACH_VARIABLES if name in os.environ}
    given["PATH"] = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
    plain = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
    # fetch starts other programs, which must not survive us.
    tree = await TreeProbe().find()
    return await _call(("fetch", *plain, "--", url, *refspecs), git_dir, given, timeout_s, tree=tree)


async def load_guard(cwd: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> GitGuard | GitResult:
    """Read which programs a repository's configuration names, and the user's name and email; or return git's error."""
    listed = await list_config(cwd, env=env)
    return listed if isinstance(listed, GitResult) else _read_guard(listed)


async def list_config(
    cwd: str | os.PathLike[str], *, env: Mapping[str, str] | None = None
) -> list[tuple[str, str, str]] | GitResult:
    """Return (scope, key, value) of every setting for a directory, weakest first; or git's error."""
    given = {**_environment(_SETTINGS), **_pin_common(cwd, env or {}), **(env or {})}
    # The user's own files contain the name and email. Reading them starts no program.
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
        given.pop(name, None)
    if os.environ.get("GIT_CONFIG_NOSYSTEM"):
        given["GIT_CONFIG_NOSYSTEM"] = "1"
    args = ("config", "--list", "--null", "--show-scope", "--includes")
    listed = await _call(args, os.fspath(cwd), given, PROBE_TIMEOUT_S)
    if not listed.ok:
        return listed
    fields = listed.fields
    rows = [(scope, *entry.partition("\n")[::2]) for scope, entry in zip(fields[::2], fields[1::2], strict=False)]
    return [(scope, key, value) for scope, key, value in rows if scope != "command"]


@contextmanager
def confine_git(guard: GitGuard, top: str, territory: Territory, places: tuple[str, str]) -> Iterator[GitGuard]:
    """Let git store files of a checkout, but write in two places only, and read nothing hidden.

    Agents may swap links in at any time, so the first place must be a real path from before. Does nothing if the kernel
    has no Landlock.
    """
    from retinue.sandbox.landlock import leave_files
    from retinue.sandbox.profile import Profile
    from retinue.sandbox.server import RestrictedThread

    profile = Profile(places[0], "workspace_write", secrets=territory.hidden, exposed=(*territory.exposed, top))
    thread = RestrictedThread(partial(leave_files, profile, os.path.realpath(places[1])))
    try:
        yield replace(guard, spawn_thread=thread)
    finally:
        thread.close()


def _pin_common(cwd: str | os.PathLike[str], env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variable without which a file in `.git`, put there at any time, could name another repository."""
    if "GIT_DIR" not in env:
        place = os.path.abspath(cwd)
        for folder in (place, *map(str, PurePath(place).parents)):
            git = os.path.join(folder, ".git")
            if os.path.lexists(git):
                named = ".git" if folder == place else git  # git prints paths as they are named
                # With the variable git would not heed core.worktree.
                is_usual = not os.path.islink(git) and is_repository(git) and read_worktree(git) == git
                return {"GIT_COMMON_DIR": named} if is_usual else {}
    return {}


def _find_link(args: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """Return a link through which git would write a ref, its log or a worktree's record: agents can put some there."""
    if not " ".join(args[:2]).startswith(_REFERRING):
        return ""
    dirs = read_git_dirs(cwd)
    own = env.get("GIT_DIR", dirs.own)
    common = env.get("GIT_COMMON_DIR", own if "GIT_DIR" in env else dirs.common)
    names = [word for word in args[1:] if word == "HEAD" or word.startswith("refs/")]
    ends = [os.path.join("logs", name) for name in names] + [os.path.dirname(name) for name in names]
    for base, end in ((base, end) for base in {own, common} - {""} for end in (*ends, "worktrees")):
        path = base
        for part in filter(None, end.split("/")):
            path = os.path.join(path, part)
            if os.path.islink(path):
                return path
    return ""


def find_git(workspace: str) -> str:
    """Return the path of git: the system's, else one on PATH outside the workspace, else an empty string."""
    if program := find_program("git", SYSTEM_DIRS):
        return program
    inside = os.path.realpath(workspace)
    path = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    trusted = [folder for folder in path if os.path.commonpath((os.path.realpath(folder), inside)) != inside]
    return find_program("git", trusted)


async def _call(  # noqa: PLR0913 - each is used by name
    args: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    *,
    pass_fds: tuple[int, ...] = (),
    max_output: int = _MAX_OUTPUT,
    tree: Tree | None = None,
    stdin: int = subprocess.DEVNULL,
    spawn_thread: SpawnThread | None = None,
) -> GitResult:
    program = find_git(cwd)
    if not program:
        return GitResult(127, error="git is not installed")
    out, errors = bytearray(), bytearray()

    def take_output(data: bytes) -> bool:
        out.extend(data)
        return len(out) > max_output

    def take_error(data: bytes) -> None:
        errors.extend(data[: _MAX_ERROR - len(errors)])

    path = os.pathsep.join(dict.fromkeys((os.path.dirname(program), "/usr/bin", "/bin")))
    argv, env = [program, "--no-pager", *args], {"PATH": path, **env}
    command = ProcessCommand(argv, cwd, env, pass_fds, stdin, spawn_thread=spawn_thread)
    try:
        ended = await run_process(
            command,
            on_output=take_output,
            on_error=take_error,
            timeout_s=timeout_s,
            grace_s=1.0,
            # git starts no other program here, and must not survive us.
            tree=tree or TreeProbe().find_single(),
        )
    except (OSError, ValueError) as error:
        return GitResult(126, error=f"git could not be started: {error}")
    if ended.timed_out:
        return GitResult(124, error=f"git {args[0]} did not end within {timeout_s:g} s")
    if ended.stopped:
        return GitResult(125, error=f"git {args[0]} printed more than {max_output} bytes")
    return GitResult(ended.code, bytes(out), errors.decode("utf-8", "replace"))


def _environment(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    # As variables, not with -c, because -c splits at the first "=", which a setting's name may contain.
    given = select(os.environ, GIT) | _ENVIRONMENT
    count = 0
    for key, value in settings:
        given[f"GIT_CONFIG_KEY_{count}"], given[f"GIT_CONFIG_VALUE_{count}"] = key, value
        count += 1
    return {**given, "GIT_CONFIG_COUNT": str(count)}


def _read_guard(entries: Iterable[tuple[str, str, str]]) -> GitGuard:
    """Build the guard from (scope, key, value) entries, weakest first."""
    overrides: dict[str, str] = {}
    data: dict[str, str] = {}
    directories: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    filters: set[str] = set()
    is_sparse = is_partial = has_hooks_path = False
    for scope, key, value in entries:
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        if (section, name) in _PROGRAMS:
            overrides[key] = _PROGRAMS[section, name]
            if section == "filter":
                filters.add(inner)
                # Disable all settings of the filter, because an include may set the others later.
                overrides |= {f"filter.{inner}.{each}": _PROGRAMS["filter", each] for each in _FILTER}
        elif key == "safe.directory":
            # Like git itself, accept this only from the user's or the system's configuration.
            directories += [(key, value)] if scope in ("system", "global") else []
        elif key in _DATA:
            data[key] = value
        elif key == "core.sparsecheckout":
            is_sparse = value.lower() in _TRUE
        elif (section, name) == ("remote", "promisor"):
            is_partial = is_partial or value.lower() in _TRUE
        elif key == "core.hookspath":
            has_hooks_path = True
        elif section in _NAMES and rest in ("name", "email"):
            names[key] = value
    settings = (*overrides.items(), *data.items(), *directories)
    return GitGuard(settings, _find_author(names), frozenset(filters), is_sparse, is_partial, has_hooks_path)


_TRUE = ("", "true", "yes", "on", "1")
_FILTER = ("clean", "smudge", "process", "required")


def _find_author(names: Mapping[str, str]) -> tuple[str, str] | None:
    name = names.get("author.name") or names.get("user.name", "")
    email = names.get("author.email") or names.get("user.email", "")
    return (name, email) if name.strip() and email.strip() else None
