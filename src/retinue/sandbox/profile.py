"""Profiles: what the commands of one run may access, as plain data. Reads links and git pointers, writes nothing.

Must not know how a profile is enforced.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.environment import OWN, READING, SHELL, WRITING, select
from retinue.core.run import BRANCH_PREFIX
from retinue.sandbox.gitdirs import GitDirs, list_steering, read_git_dirs, read_lender

Mode: TypeAlias = Literal["read_only", "workspace_write", "off"]

TMP_BYTES = 256 * 1024 * 1024
TMP_PREFIX = "retinue-tmp-"
PRIVATE_DIRS = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Where other programs keep sockets, locks and files that commands must not access."""

_OWN_SECRETS = (
    "auth.json",
    "models.json",
    "mcp.json",
    "subagents.json",
    "sessions",
    "retinue/worker",
    "retinue/processes",
)
"""In the agent directory: keys, files that may contain passwords, sessions, and files of a cluster worker."""
SECRETS = (
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".netrc", ".npmrc", ".yarnrc.yml", ".pypirc"),
    *(".git-credentials", ".config/gcloud", ".config/gh", ".config/hub", ".config/git/credentials", ".config/op"),
    *(
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".gem/credentials",
        ".m2/settings.xml",
        ".gradle/gradle.properties",
    ),
    *(".password-store", ".local/share/keyrings", ".vault-token", ".terraform.d/credentials.tfrc.json"),
    *(".pgpass", ".pg_service.conf", ".postgresql"),
    *(".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge"),
    *(
        ".Xauthority",
        ".ICEauthority",
        ".config/pulse/cookie",
        ".local/share/kwalletd",
        ".config/1Password",
        ".1password",
    ),
    *(".colima", ".lima", ".rd", ".orbstack", ".minikube", ".config/containers", ".config/rclone", ".config/sops"),
    *(".config/age", ".s3cfg", ".boto", ".oci", ".config/doctl", ".fly", ".kaggle", ".cache/huggingface/token"),
    *(".thunderbird", "Library/Keychains", "Library/Application Support/Google/Chrome", "Library/Cookies"),
    *(*(f".pi/agent/{name}" for name in _OWN_SECRETS), ".pi/subagent-sessions"),
    *(".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".config/github-copilot", ".local/share/opencode/auth.json", ".config/goose/secrets.yaml"),
)
"""Relative to the home directory: keys, tokens, browser profiles and credentials of other agents."""

ENGINES = ("/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket")
"""Sockets of container engines outside /run; access to one means control of the machine."""

PROTECTED_DIRS = (
    *(".pi", ".agents", ".codingcode", ".claude", ".codex", ".opencode", ".cursor", ".gemini", ".vscode", ".idea"),
)
PROTECTED_FILES = (".mcp.json",)
_IF_THERE = (".github/agents", "opencode.json", "opencode.jsonc")
"""Protected only if they exist: a placeholder for them would confuse other programs."""
"""In a workspace: files that start programs or define agents when the workspace is opened."""
SHELL_FILES = (".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile")
"""Protected if the workspace is a home directory."""
HOME_FILES = (*SHELL_FILES, ".gitconfig", ".inputrc", ".xprofile", ".xsessionrc")
HOME_DIRS = (".config/autostart", ".config/systemd", ".config/git", ".config/fish", ".local/bin", ".ssh")

_COPIES = "retinue/worktrees"
"""In the agent directory: the repositories of runs that work in a copy."""
_LINKED_FOLDERS = ("agents", "subagents", "extensions", "skills", "prompts")
_SET_BY_US = {"GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}


class Profile(Struct, frozen=True):
    """What the commands of one run may access."""

    workspace: str
    """A real path without links."""
    mode: Mode = "read_only"
    network: bool = False
    writable: tuple[str, ...] = ()
    """Writable paths besides the workspace; missing ones are ignored."""
    secrets: tuple[str, ...] = ()
    """Files and directories that appear empty."""
    protected: tuple[str, ...] = ()
    """Paths inside writable directories that must not be written; they may be missing."""
    grounds: tuple[str, ...] = ()
    """Writable directories that are searched for more protected paths when a command starts."""
    forbidden: tuple[str, ...] = ()
    """Missing files that would do harm even if empty; removed if a command creates them."""
    environment: tuple[str, ...] = READING
    """Names of environment variables that are passed on; a name may end with `*`."""
    visible: tuple[str, ...] = ()
    """Readable even inside a private directory."""
    exposed: tuple[str, ...] = ()
    """Real paths that are readable, but not writable, although their parent is hidden."""
    tmp_bytes: int = TMP_BYTES
    """Size limit of each private directory that is in memory."""
    max_memory: int = 0
    """Bytes for a command and its children; 0 means a share of the machine's memory."""
    home: str = ""
    """A real path; sockets of other programs in it are not reachable."""

    @property
    def is_readonly(self) -> bool:
        return self.mode == "read_only"

    def is_hidden(self, path: str) -> bool:
        """Return whether a secret is the nearest listed parent of the path."""
        return _is_nearer(path, self.secrets, (self.workspace, *self.exposed))

    def is_protected(self, path: str) -> bool:
        """Return whether a protected path is the nearest listed parent of the path."""
        return _is_nearer(path, self.protected, (self.workspace, *self.writable))


class Sandbox(Struct, frozen=True):
    """Settings for what commands may access."""

    mode: Literal["auto", "off"] = "auto"
    """`auto` enforces what the machine supports and refuses read-only commands if it supports nothing."""
    network: bool = True
    """Network access for runs that may write; read-only commands never have it."""
    writable: tuple[str, ...] = ("~/.cache",)
    """Paths that may be written besides the workspace and a private temporary directory."""
    hidden: tuple[str, ...] = ()
    """Files and directories that commands cannot read, besides the usual places for keys."""
    environment: tuple[str, ...] = ()
    """Environment variables that commands see besides the usual ones; a name may end with `*`."""
    memory_mb: int | None = None
    """Megabytes of memory for one command and its children; by default three quarters of the available memory."""


class SandboxSettings(Struct, frozen=True):
    """The user's sandbox settings for all runs."""

    mode: Literal["auto", "off"] = "auto"
    network: bool = True
    writable: tuple[str, ...] = ("~/.cache",)
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    home: str = ""
    agent_dir: str = ""
    """Contains retinue's own keys and sessions."""
    exposed: tuple[str, ...] = ()
    """Readable although the parent is hidden."""
    max_memory: int = 0


def build_readonly(workspace: str | Path, settings: SandboxSettings) -> Profile:
    """Build the profile of a run that may change nothing; it never has network access."""
    real = os.path.realpath(workspace)
    return Profile(
        real,
        "read_only",
        secrets=list_secrets(settings),
        environment=(*READING, *OWN, *SHELL, *settings.environment),
        visible=(*_list_pointed(real, read_git_dirs(real), settings), *list_own()),
        exposed=_list_exposed(settings),
        max_memory=settings.max_memory,
    )


def build_writing(workspace: str | Path, settings: SandboxSettings) -> Profile:
    """Build the profile of a run that may write in one directory only."""
    real = os.path.realpath(workspace)
    extra = tuple(os.path.realpath(expand(path, settings.home)) for path in settings.writable)
    git = read_git_dirs(real)
    # The checkout's own part of the repository, so that commits work; hooks and configuration stay protected.
    parts = list_worktree_parts(git) if git.is_linked else ()
    parts += (git.own,) if is_copy(real, git, settings) else ()
    # Where agents can write, they could have replaced a part by a link.
    shared = tuple(path for path in parts if not is_below(path, (real, *extra)) and os.path.realpath(path) == path)
    roots = (real, *extra, *shared)
    protected = (path for path in list_protected(real, git, settings) if is_below(path, roots))
    return Profile(
        real,
        "workspace_write",
        network=settings.network,
        writable=(*extra, *shared),
        secrets=list_secrets(settings),
        # A user who lists a protected path itself wants it writable; listing its parent is not enough.
        protected=tuple(path for path in protected if path not in extra),
        grounds=tuple(dict.fromkeys((real, *extra))),
        forbidden=tuple(path for path in list_forbidden(real, git, settings) if is_below(path, roots)),
        environment=(*WRITING, *OWN, *SHELL, *settings.environment),
        visible=(*_list_pointed(real, git, settings), *list_own()),
        exposed=_list_exposed(settings),
        max_memory=settings.max_memory,
        home=os.path.realpath(settings.home) if settings.home else "",
    )


def list_visible(profile: Profile, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the real paths of `wanted` that must be readable although a private directory would hide them.

    Excludes paths where commands write: they are visible anyway, and a command could replace one by a link.
    """
    roots = (profile.workspace, *profile.writable)
    outside = [path for path in wanted if not is_below(os.path.normpath(path), roots)]
    real = dict.fromkeys(map(os.path.realpath, outside))
    return tuple(path for path in real if not is_below(path, roots) and not profile.is_hidden(path))


def list_own() -> tuple[str, ...]:
    """Return where our interpreter and libraries are if that is a private directory: programs we start need them."""
    places = dict.fromkeys(os.path.realpath(place) for place in (sys.prefix, sys.base_prefix))
    return tuple(place for place in places if is_below(place, PRIVATE_DIRS) and place not in PRIVATE_DIRS)


def list_secrets(settings: SandboxSettings) -> tuple[str, ...]:
    """Return all hidden paths as unique real paths, including missing ones."""
    below = [os.path.join(settings.home, name) for name in SECRETS] if settings.home else []
    own = [os.path.join(settings.agent_dir, name) for name in _OWN_SECRETS] if settings.agent_dir else []
    told = [expand(path, settings.home) for path in settings.secrets]
    every = (*below, *own, *told, *ENGINES, find_private_root())
    return tuple(dict.fromkeys(os.path.realpath(path) for path in every))


def find_private_root() -> str:
    """Return the parent of all private directories of this user; each run sees only its own."""
    owner = os.geteuid() if hasattr(os, "geteuid") else 0
    return os.path.join(os.path.realpath(tempfile.gettempdir()), f"retinue-{owner}")


def _list_exposed(settings: SandboxSettings) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, settings.exposed))


def is_copy(workspace: str, git: GitDirs, settings: SandboxSettings) -> bool:
    """Return whether a checkout is a copy that retinue made: only retinue puts repositories there."""
    place = os.path.join(os.path.realpath(settings.agent_dir), _COPIES) if settings.agent_dir else ""
    return git.is_known and git.own == git.common and os.path.dirname(git.own) == place


def _list_pointed(workspace: str, git: GitDirs, settings: SandboxSettings) -> tuple[str, ...]:
    """Return the external repository of a checkout, and for a copy the repository that lends its objects."""
    if not git.is_known:
        return ()
    lender = read_lender(git.own) if is_copy(workspace, git, settings) else ""
    return (git.common, git.own, *((lender,) if lender else ()))


def list_worktree_parts(git: GitDirs) -> tuple[str, ...]:
    """Return the parts of the common repository that a linked worktree of the user writes."""
    if os.path.basename(git.own).startswith(BRANCH_PREFIX):
        # This is git's record of a copy: a `.git` that points here would get write access to everyone's objects.
        return ()
    return (os.path.join(git.common, "objects"), os.path.join(git.common, "logs"), git.own)


def list_protected(workspace: str, git: GitDirs, settings: SandboxSettings) -> tuple[str, ...]:
    """Return what later runs outside the sandbox: hooks, configuration, agents, editor tasks."""
    found = [os.path.join(workspace, name) for name in (*PROTECTED_DIRS, *PROTECTED_FILES)]
    found += [path for name in _IF_THERE if os.path.lexists(path := os.path.join(workspace, name))]
    if git.own:
        found += [os.path.join(folder, name) for folder in (git.own, git.common) for name in ("hooks", "config")]
        found.append(os.path.join(git.own, "config.worktree"))
        found += [os.path.join(git.own, name) for name in ("commondir", "gitdir")] if git.is_linked else []
        # This file decides which other objects the run can read.
        found += [os.path.join(git.own, "objects", "info", "alternates")] if is_copy(workspace, git, settings) else []
        hooks, files = _list_steering(workspace, git, settings.home)
        found += [*hooks, *filter(os.path.lexists, files)]
    if not git.is_plain:
        # Protect a pointer to elsewhere, and prevent a fake repository that others would trust.
        found.append(os.path.join(workspace, ".git"))
    if settings.home:
        found += [os.path.join(os.path.realpath(settings.home), name) for name in (*HOME_FILES, *HOME_DIRS)]
    own = [settings.agent_dir] if settings.agent_dir else []
    own += [os.path.join(settings.home, ".codingcode")] if settings.home else []
    found += [*map(os.path.realpath, own), *(path for folder in own for path in _list_linked(folder))]
    return tuple(dict.fromkeys(found))


def _list_linked(folder: str, *, depth: int = 1) -> list[str]:
    """Return the targets of links in the user's configuration: writing there changes the user's settings and code."""
    found: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                found.append(os.path.realpath(entry.path))
            elif depth and entry.name in _LINKED_FOLDERS:
                found += _list_linked(entry.path, depth=depth - 1)
    return found


def _list_steering(workspace: str, git: GitDirs, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return hook directories and configuration files that the repository or the user has placed elsewhere."""
    own = [os.path.join(folder, name) for folder in (git.common, git.own) for name in ("config", "config.worktree")]
    users = [os.path.join(home, name) for name in (".gitconfig", ".config/git/config")] if home else []
    return list_steering(dict.fromkeys((*own, *users)), workspace, home)


def list_forbidden(workspace: str, git: GitDirs, settings: SandboxSettings) -> tuple[str, ...]:
    """Return missing files that git would read: pointers to another repository and included configuration.

    Git refuses to work if one of them is empty, so they cannot be covered by a stub.
    """
    pointer = [os.path.join(git.own, "commondir")] if git.is_plain or is_copy(workspace, git, settings) else []
    included = _list_steering(workspace, git, settings.home)[1] if git.own else ()
    return tuple(path for path in (*pointer, *included) if not os.path.lexists(path))


def build_environment(profile: Profile, inherited: Mapping[str, str], tmp: str = "/tmp") -> dict[str, str]:
    """Return the environment of a command: the listed variables and settings that avoid traces."""
    kept = select(inherited, profile.environment)
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "GIT_OPTIONAL_LOCKS": "0"} if profile.is_readonly else {}
    return {**kept, **_SET_BY_US, **quiet, "TMPDIR": tmp}


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of the directories or inside one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _is_nearer(path: str, places: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether the nearest parent of a path is in `places`, not in `others`."""
    return _measure_nearest(path, places) > _measure_nearest(path, others)


def _measure_nearest(path: str, places: Sequence[str]) -> int:
    # Runs for every command and every secret, so it must be fast.
    inside = path.rstrip("/") + "/"
    return max((len(place) for place in places if inside.startswith(place.rstrip("/") + "/")), default=0)


def expand(path: str, home: str) -> str:
    """Replace a leading `~` by the home directory; `~user` is not supported."""
    if path == "~" or path.startswith("~/"):
        return os.path.join(home or "/", path[2:])
    return path
