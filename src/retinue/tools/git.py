"""Runs git so that a repository can choose no program of ours: no hook, filter, pager, helper or editor is started.

Names of programs in a repository's own configuration are looked up and blanked out; of the user's configuration only
plain data is taken over. This file must not know what git is used for.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from retinue.core.environment import GIT, select
from retinue.core.errors import quote
from retinue.tools.process import ProcessCommand, run_process
from retinue.tools.process_tree import SYSTEM_DIRS, Tree, TreeProbe, find_program

PROBE_TIMEOUT_S = 5.0
_MAX_OUTPUT = 64 * 1024 * 1024
_MAX_ERROR = 16 * 1024
# Builtins that need neither an editor nor the network. An alias cannot take a builtin's name. What `bundle` and
# `repack` start is git itself, and ends with its pipe.
_COMMANDS = frozenset(
    {
        *("add", "branch", "bundle", "cat-file", "check-attr", "commit-tree", "config", "diff", "for-each-ref", "init"),
        *("index-pack", "log", "ls-files", "ls-tree", "merge-base", "pack-objects", "read-tree", "repack", "reset"),
        *("rev-list", "rev-parse", "show", "status", "symbolic-ref", "unpack-objects", "update-index", "update-ref"),
        *("worktree", "write-tree"),
    }
)
# These look into files, so filters would run, or show differences, so a program could be asked to.
_TOUCHING = frozenset(
    {"add", "diff", "log", "ls-files", "read-tree", "reset", "show", "status", "update-index", "worktree"}
)
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
    # Children would outlive a kill of ours.
    ("checkout.workers", "1"),
    # What is in the files counts, not what a cache says about them.
    ("core.untrackedCache", "false"),
    ("core.checkStat", "default"),
    ("core.trustctime", "true"),
    ("core.splitIndex", "false"),
    ("core.safecrlf", "false"),
    # A file is deleted once its commit is there, so the commit must really be there.
    ("core.fsync", "committed,reference"),
    ("core.fsyncMethod", "fsync"),
    ("i18n.commitEncoding", "UTF-8"),
    ("status.renames", "false"),
    ("color.ui", "false"),
)
# What a repository may set to a program, and the value that means none.
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
# Of the user's own configuration: data, never a program.
_DATA = frozenset({"core.autocrlf", "core.eol", "core.excludesfile", "core.attributesfile", "safe.directory"})
_NAMES = ("author", "committer", "user")
# For a fetch: how this machine reaches others, in its own configuration, never in a repository's.
_REACH = ("credential", "http", "url")
_REACH_VARIABLES = (
    *("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
_TRANSPORTS = "https:http:ssh:git"
FETCH_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class GitResult:
    """What one call of git left."""

    code: int
    out: bytes = b""
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """Its output without the last line's end."""
        return os.fsdecode(self.out).removesuffix("\n")

    @property
    def fields(self) -> list[str]:
        """Its output as NUL-terminated fields."""
        return os.fsdecode(self.out).split("\0")[:-1]

    @property
    def problem(self) -> str:
        """Why it failed, in one line."""
        lines = [line.strip() for line in self.error.splitlines() if line.strip()]
        # Warnings and hints come first or last; the reason is what git died of.
        told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return quote(told[0], 300)[1:-1] if told else f"git ended with status {self.code}"


@dataclass(frozen=True, slots=True)
class GitGuard:
    """What must be said to git beside a command, for one repository."""

    settings: tuple[tuple[str, str], ...] = ()
    author: tuple[str, str] | None = None
    """Name and address that the user has configured."""
    filters: frozenset[str] = frozenset()
    """Filters that are configured and are not run."""
    is_sparse: bool = False
    """Only a part of the files is checked out."""
    has_hooks_path: bool = False
    """Hooks are not where they are without a word about it."""


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
    """Run one git command; a failure of any kind is a result. `env` alone brings GIT_ variables.

    Without a guard it is loaded where the command needs one; whoever makes several calls loads it once. Output beyond
    `max_output` ends the command with status 125.
    """
    if args[0] not in _COMMANDS:
        raise ValueError(f"git command {quote(args[0])} is not one that is known to start no other program")
    if guard is None and args[0] in _TOUCHING:
        loaded = await load_guard(cwd, env=env)
        if isinstance(loaded, GitResult):
            return loaded
        guard = loaded
    shown = ("--no-ext-diff", "--no-textconv") if args[0] in _SHOWING else ()
    settings = (*_SETTINGS, *(guard.settings if guard is not None else ()))
    given = {**_environment(settings), **(env or {})}
    words = (args[0], *shown, *args[1:])
    return await _call(words, os.fspath(cwd), given, timeout_s, pass_fds=pass_fds, max_output=max_output, stdin=stdin)


async def fetch_git(
    url: str, refspecs: Sequence[str], git_dir: str, *, timeout_s: float = FETCH_TIMEOUT_S
) -> GitResult:
    """Fetch from another machine into a bare repository, whose own configuration MUST be ours.

    The programs that reach it (ssh, credential helpers) are those of the user's own configuration; nobody is asked.
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
    # Here others are started, which must not go on when we are gone.
    tree = await TreeProbe().find()
    return await _call(("fetch", *plain, "--", url, *refspecs), git_dir, given, timeout_s, tree=tree)


async def load_guard(cwd: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> GitGuard | GitResult:
    """Read which programs a repository's configuration names, and who the user is; or git's failure to tell."""
    listed = await list_config(cwd, env=env)
    return listed if isinstance(listed, GitResult) else _read_guard(listed)


async def list_config(
    cwd: str | os.PathLike[str], *, env: Mapping[str, str] | None = None
) -> list[tuple[str, str, str]] | GitResult:
    """Scope, key and value of all that is configured for a directory, weakest first; or git's failure to tell."""
    given = {**_environment(_SETTINGS), **(env or {})}
    # Reading the user's own files is how the name is found; reading starts nothing.
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


def find_git(workspace: str) -> str:
    """The program: the system's, else one on PATH that the workspace did not bring."""
    if program := find_program("git", SYSTEM_DIRS):
        return program
    inside = os.path.realpath(workspace)
    path = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    trusted = [folder for folder in path if os.path.commonpath((os.path.realpath(folder), inside)) != inside]
    return find_program("git", trusted)


async def _call(
    args: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    *,
    pass_fds: tuple[int, ...] = (),
    max_output: int = _MAX_OUTPUT,
    tree: Tree | None = None,
    stdin: int = subprocess.DEVNULL,
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
    command = ProcessCommand([program, "--no-pager", *args], cwd, {"PATH": path, **env}, pass_fds, stdin)
    try:
        ended = await run_process(
            command,
            on_output=take_output,
            on_error=take_error,
            timeout_s=timeout_s,
            grace_s=1.0,
            # It starts no other program, and must not go on when we are gone.
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
    # As variables and not with -c: there a name with "=" in it would be cut at the wrong place.
    given = select(os.environ, GIT) | _ENVIRONMENT
    count = 0
    for key, value in settings:
        given[f"GIT_CONFIG_KEY_{count}"], given[f"GIT_CONFIG_VALUE_{count}"] = key, value
        count += 1
    return {**given, "GIT_CONFIG_COUNT": str(count)}


def _read_guard(entries: Iterable[tuple[str, str, str]]) -> GitGuard:
    """From scope, key and value, weakest first."""
    overrides: dict[str, str] = {}
    data: dict[str, str] = {}
    directories: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    filters: set[str] = set()
    is_sparse = has_hooks_path = False
    for scope, key, value in entries:
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        if (section, name) in _PROGRAMS:
            overrides[key] = _PROGRAMS[section, name]
            if section == "filter":
                filters.add(inner)
                # Whichever of the three is set later, by an include perhaps, is off already.
                overrides |= {f"filter.{inner}.{each}": _PROGRAMS["filter", each] for each in _FILTER}
        elif key == "safe.directory":
            # Git takes this from the user only; so do we.
            directories += [(key, value)] if scope in ("system", "global") else []
        elif key in _DATA:
            data[key] = value
        elif key == "core.sparsecheckout":
            is_sparse = value.lower() in ("", "true", "yes", "on", "1")
        elif key == "core.hookspath":
            has_hooks_path = True
        elif section in _NAMES and rest in ("name", "email"):
            names[key] = value
    settings = (*overrides.items(), *data.items(), *directories)
    return GitGuard(settings, _find_author(names), frozenset(filters), is_sparse, has_hooks_path)


_FILTER = ("clean", "smudge", "process", "required")


def _find_author(names: Mapping[str, str]) -> tuple[str, str] | None:
    name = names.get("author.name") or names.get("user.name", "")
    email = names.get("author.email") or names.get("user.email", "")
    return (name, email) if name.strip() and email.strip() else None
