"""What the commands of one run may touch, as a value, and how it is made. Reads links and pointers, writes nothing.

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
"""Where other programs keep sockets, locks and files that are none of a command's business."""

_OWN_SECRETS = ("auth.json", "models.json", "mcp.json", "subagents.json", "sessions", "retinue/worker")
"""In the agent directory: keys, files that may hold some (the database's password), what was said, and what a worker of
this machine keeps for others."""
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
"""Below the home directory: keys, tokens, browsers, and what other agents sign in with."""

ENGINES = ("/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket")
"""Sockets of container engines beside those in /run: whoever may talk to one has the machine."""

PROTECTED_DIRS = (".pi", ".agents", ".codingcode", ".claude", ".vscode", ".idea")
PROTECTED_FILES = (".mcp.json",)
"""In a workspace: what starts programs or makes agents when somebody opens it."""
SHELL_FILES = (".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile")
"""Protected where the workspace is a home directory."""
HOME_FILES = (*SHELL_FILES, ".gitconfig", ".inputrc", ".xprofile", ".xsessionrc")
HOME_DIRS = (".config/autostart", ".config/systemd", ".config/git", ".config/fish", ".local/bin", ".ssh")

_COPIES = "retinue/worktrees"
"""In the agent directory: the repositories that runs in copies write."""
_LINKED_FOLDERS = ("agents", "subagents", "extensions", "skills", "prompts")
_SET_BY_US = {"GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}


class Profile(Struct, frozen=True):
    """The boundary of one run's commands."""

    workspace: str
    """A real path: no link in it."""
    mode: Mode = "read_only"
    network: bool = False
    writable: tuple[str, ...] = ()
    """Beside the workspace, and only where they exist."""
    secrets: tuple[str, ...] = ()
    """Files and directories that look empty."""
    protected: tuple[str, ...] = ()
    """Inside of what may be written, and not to be; also those that do not exist."""
    grounds: tuple[str, ...] = ()
    """Of what may be written, that in which more is protected: what is found there when a command begins."""
    forbidden: tuple[str, ...] = ()
    """Files that do not exist, that even an empty one would do harm: taken away again when a command has made one."""
    environment: tuple[str, ...] = READING
    """Names of variables that are passed on; one may end with a star."""
    visible: tuple[str, ...] = ()
    """To be read also where a private directory would hide it."""
    exposed: tuple[str, ...] = ()
    """Real paths of what is seen, and not written by that, although what is around it is hidden."""
    tmp_bytes: int = TMP_BYTES
    """What each private directory may hold, while it is in memory."""
    max_memory: int = 0
    """Bytes that a command and all it starts may have; 0 leaves it to what the machine has."""
    home: str = ""
    """A real path; sockets of other programs in it are out of reach."""

    @property
    def is_readonly(self) -> bool:
        return self.mode == "read_only"

    def is_hidden(self, path: str) -> bool:
        """Whether the nearest word about a path is that it is hidden."""
        return _is_nearer(path, self.secrets, (self.workspace, *self.exposed))

    def is_protected(self, path: str) -> bool:
        """Whether the nearest word about a path is that it is not to be written."""
        return _is_nearer(path, self.protected, (self.workspace, *self.writable))


class Sandbox(Struct, frozen=True):
    """The user's settings about what commands may touch."""

    mode: Literal["auto", "off"] = "auto"
    """`auto` enforces what the machine can, and refuses read-only commands where it cannot."""
    network: bool = True
    """Network for runs that may write; read-only commands never have it."""
    writable: tuple[str, ...] = ("~/.cache",)
    """Places that may be written beside the workspace and a private directory for temporary files."""
    hidden: tuple[str, ...] = ()
    """Files and directories that commands cannot read, beside those that hold keys by custom."""
    environment: tuple[str, ...] = ()
    """Variables that commands see beside the usual ones; a name may end with a star."""
    memory_mb: int | None = None
    """Megabytes of memory that one command and all it starts may have; three quarters of what there is by default."""


class SandboxWishes(Struct, frozen=True):
    """What the user settled for all runs."""

    mode: Literal["auto", "off"] = "auto"
    network: bool = True
    writable: tuple[str, ...] = ("~/.cache",)
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    home: str = ""
    agent_dir: str = ""
    """Where our own keys and sessions are."""
    exposed: tuple[str, ...] = ()
    """What is seen although what is around it is hidden."""
    max_memory: int = 0


def build_readonly(workspace: str | Path, wishes: SandboxWishes) -> Profile:
    """For an agent that may change nothing: no network, whatever is wished."""
    real = os.path.realpath(workspace)
    return Profile(
        real,
        "read_only",
        secrets=list_secrets(wishes),
        environment=(*READING, *OWN, *SHELL, *wishes.environment),
        visible=(*_list_pointed(real, read_git_dirs(real), wishes), *list_own()),
        exposed=_list_exposed(wishes),
        max_memory=wishes.max_memory,
    )


def build_writing(workspace: str | Path, wishes: SandboxWishes) -> Profile:
    """For an agent that works in a directory, and nowhere else."""
    real = os.path.realpath(workspace)
    extra = tuple(os.path.realpath(expand(path, wishes.home)) for path in wishes.writable)
    git = read_git_dirs(real)
    # A checkout's own part of the repository: commits work in it, hooks and configuration stay as they are.
    parts = list_worktree_parts(git) if git.is_linked else ()
    parts += (git.own,) if is_copy(real, git, wishes) else ()
    # Where agents write anyway one could have put a link; and one leads elsewhere.
    shared = tuple(path for path in parts if not is_below(path, (real, *extra)) and os.path.realpath(path) == path)
    roots = (real, *extra, *shared)
    protected = (path for path in list_protected(real, git, wishes) if is_below(path, roots))
    return Profile(
        real,
        "workspace_write",
        network=wishes.network,
        writable=(*extra, *shared),
        secrets=list_secrets(wishes),
        # Who names a protected place itself means it; who names all that is around it does not.
        protected=tuple(path for path in protected if path not in extra),
        grounds=tuple(dict.fromkeys((real, *extra))),
        forbidden=tuple(path for path in list_forbidden(real, git, wishes) if is_below(path, roots)),
        environment=(*WRITING, *OWN, *SHELL, *wishes.environment),
        visible=(*_list_pointed(real, git, wishes), *list_own()),
        exposed=_list_exposed(wishes),
        max_memory=wishes.max_memory,
        home=os.path.realpath(wishes.home) if wishes.home else "",
    )


def list_visible(profile: Profile, wanted: Sequence[str]) -> tuple[str, ...]:
    """The real paths of what is to be read although a private directory would hide it.

    Nothing of where commands write: it is there anyway, and one could turn it into a link to elsewhere just now.
    """
    roots = (profile.workspace, *profile.writable)
    outside = [path for path in wanted if not is_below(os.path.normpath(path), roots)]
    real = dict.fromkeys(map(os.path.realpath, outside))
    return tuple(path for path in real if not is_below(path, roots) and not profile.is_hidden(path))


def list_own() -> tuple[str, ...]:
    """Where our own interpreter and its libraries are, if that is somewhere private: what we start needs them."""
    places = dict.fromkeys(os.path.realpath(place) for place in (sys.prefix, sys.base_prefix))
    return tuple(place for place in places if is_below(place, PRIVATE_DIRS) and place not in PRIVATE_DIRS)


def list_secrets(wishes: SandboxWishes) -> tuple[str, ...]:
    """What is hidden, as real paths and without repetition; also what does not exist."""
    below = [os.path.join(wishes.home, name) for name in SECRETS] if wishes.home else []
    own = [os.path.join(wishes.agent_dir, name) for name in _OWN_SECRETS] if wishes.agent_dir else []
    told = [expand(path, wishes.home) for path in wishes.secrets]
    every = (*below, *own, *told, *ENGINES, find_private_root())
    return tuple(dict.fromkeys(os.path.realpath(path) for path in every))


def find_private_root() -> str:
    """Where the private directories of all runs of this user are: each run sees its own only."""
    owner = os.geteuid() if hasattr(os, "geteuid") else 0
    return os.path.join(os.path.realpath(tempfile.gettempdir()), f"retinue-{owner}")


def _list_exposed(wishes: SandboxWishes) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, wishes.exposed))


def is_copy(workspace: str, git: GitDirs, wishes: SandboxWishes) -> bool:
    """Whether a checkout is a copy that we made for a run: its repository lies where only we put one, and names it."""
    place = os.path.join(os.path.realpath(wishes.agent_dir), _COPIES) if wishes.agent_dir else ""
    return git.is_known and git.own == git.common and os.path.dirname(git.own) == place


def _list_pointed(workspace: str, git: GitDirs, wishes: SandboxWishes) -> tuple[str, ...]:
    """A repository that is elsewhere, and where a copy's has its objects from."""
    if not git.is_known:
        return ()
    lender = read_lender(git.own) if is_copy(workspace, git, wishes) else ""
    return (git.common, git.own, *((lender,) if lender else ()))


def list_worktree_parts(git: GitDirs) -> tuple[str, ...]:
    """What of the common repository is written from a checkout of the user's beside the main one."""
    if os.path.basename(git.own).startswith(BRANCH_PREFIX):
        # Git's own record of a copy: whoever lets `.git` lead there would have the objects of all.
        return ()
    return (os.path.join(git.common, "objects"), os.path.join(git.common, "logs"), git.own)


def list_protected(workspace: str, git: GitDirs, wishes: SandboxWishes) -> tuple[str, ...]:
    """What runs later, outside of the sandbox: hooks, configuration, agents, editors' tasks."""
    found = [os.path.join(workspace, name) for name in (*PROTECTED_DIRS, *PROTECTED_FILES)]
    if git.own:
        found += [os.path.join(folder, name) for folder in (git.own, git.common) for name in ("hooks", "config")]
        found.append(os.path.join(git.own, "config.worktree"))
        found += [os.path.join(git.own, name) for name in ("commondir", "gitdir")] if git.is_linked else []
        # It says what else the run sees.
        found += [os.path.join(git.own, "objects", "info", "alternates")] if is_copy(workspace, git, wishes) else []
        hooks, files = _list_steering(workspace, git, wishes.home)
        found += [*hooks, *filter(os.path.lexists, files)]
    if not git.is_plain:
        # A pointer that leads elsewhere, or a repository that somebody else would believe in.
        found.append(os.path.join(workspace, ".git"))
    if wishes.home:
        found += [os.path.join(os.path.realpath(wishes.home), name) for name in (*HOME_FILES, *HOME_DIRS)]
    own = [wishes.agent_dir] if wishes.agent_dir else []
    own += [os.path.join(wishes.home, ".codingcode")] if wishes.home else []
    found += [*map(os.path.realpath, own), *(path for folder in own for path in _list_linked(folder))]
    return tuple(dict.fromkeys(found))


def _list_linked(folder: str, *, depth: int = 1) -> list[str]:
    """Where links in the user's own configuration lead: whoever writes there writes the user's settings and code."""
    found: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                found.append(os.path.realpath(entry.path))
            elif depth and entry.name in _LINKED_FOLDERS:
                found += _list_linked(entry.path, depth=depth - 1)
    return found


def _list_steering(workspace: str, git: GitDirs, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders of hooks and files of configuration that the repository, or the user, has put elsewhere."""
    own = [os.path.join(folder, name) for folder in (git.common, git.own) for name in ("config", "config.worktree")]
    users = [os.path.join(home, name) for name in (".gitconfig", ".config/git/config")] if home else []
    return list_steering(dict.fromkeys((*own, *users)), workspace, home)


def list_forbidden(workspace: str, git: GitDirs, wishes: SandboxWishes) -> tuple[str, ...]:
    """Files that git reads and may not find: pointers to another repository, and configuration that is included.

    It refuses to work where one of them is empty, so nothing covers them.
    """
    pointer = [os.path.join(git.own, "commondir")] if git.is_plain or is_copy(workspace, git, wishes) else []
    included = _list_steering(workspace, git, wishes.home)[1] if git.own else ()
    return tuple(path for path in (*pointer, *included) if not os.path.lexists(path))


def build_environment(profile: Profile, inherited: Mapping[str, str], tmp: str = "/tmp") -> dict[str, str]:
    """What a command inside sees: what the list names, and what makes it leave no traces."""
    kept = select(inherited, profile.environment)
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "GIT_OPTIONAL_LOCKS": "0"} if profile.is_readonly else {}
    return {**kept, **_SET_BY_US, **quiet, "TMPDIR": tmp}


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of some directories, or inside of one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _is_nearer(path: str, places: Sequence[str], others: Sequence[str]) -> bool:
    """Whether of all that a path is in one of some places is the nearest, and none of the others."""
    return _measure_nearest(path, places) > _measure_nearest(path, others)


def _measure_nearest(path: str, places: Sequence[str]) -> int:
    # For every command, with all that is hidden: the plainest comparison that will do.
    inside = path.rstrip("/") + "/"
    return max((len(place) for place in places if inside.startswith(place.rstrip("/") + "/")), default=0)


def expand(path: str, home: str) -> str:
    """A path with the home directory for its tilde; a user's name after it means nothing."""
    if path == "~" or path.startswith("~/"):
        return os.path.join(home or "/", path[2:])
    return path
