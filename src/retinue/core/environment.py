"""Environment variables passed to the processes that we start: one list of names per kind of program. Pure.

Only listed names are passed, so that a secret with an unexpected name does not leak. A name may end with `*`.
"""

from collections.abc import Iterable, Mapping

_FINDING = ("PATH", "HOME", "USER", "LOGNAME")
_SPEAKING = ("LANG", "LANGUAGE", "LC_*", "TZ", "TERM")
_PROXIES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
)
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE")
_WINDOWS = ("SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA")

WORKER_DIR = "RETINUE_WORKER_DIR"
"""The folder for repositories and workspaces of runs that were sent to this machine."""
EXPOSED = "RETINUE_EXPOSED"
"""Absolute paths in RETINUE_WORKER_DIR that one run may see, one per line."""
RESULT = "RETINUE_RESULT"
"""The schema of the result that a child process must deliver, and how often it may be corrected, as JSON."""
BUDGET_FD = "RETINUE_BUDGET_FD"
"""The file descriptor through which a child process draws on the budget of its run."""
QUESTION_FD = "RETINUE_QUESTION_FD"
"""The file descriptor through which the run of a child process asks its parent."""
AGENT_ID = "RETINUE_AGENT_ID"
"""The run of a child process: the parent of the agents that it starts."""
LIMITS_DIR = "RETINUE_LIMITS_DIR"
"""The folder with the usage limits that the processes of one main agent have reached."""
PASSWORD_FILES = ("PGPASSFILE", "PGSERVICEFILE")
"""Variables that name files with database passwords."""
READING = (*_FINDING, *_SPEAKING, "PWD", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
"""For a command that may not change anything."""
WRITING = (
    *(*READING, "SHELL", "CI", "PYENV_ROOT", "PYENV_VERSION"),
    *("GOPATH", "GOROOT", "GOBIN", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "JAVA_HOME", "NVM_DIR", "NVM_BIN"),
    *("VOLTA_HOME", "PNPM_HOME", "DENO_DIR", "GEM_HOME", "ANDROID_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
    *(*_CERTIFICATES, "MAKEFLAGS", *_PROXIES),
)
"""For a command that may write: also the locations of toolchains, and proxies."""
UNCONFINED = (
    *(*WRITING, "TMPDIR", "COLORTERM", "NO_COLOR", "EDITOR", "VISUAL", "MANPATH", "INFOPATH", "LD_LIBRARY_PATH"),
    *("XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GPG_TTY"),
    *("SHLVL", "HOSTNAME", "DOCKER_HOST", "KUBECONFIG", "BASH_ENV", "ENV", "PYTHONPATH", "NODE_PATH", *_WINDOWS),
)
"""For a command without a sandbox: also variables that lead to the user's own programs, which it can reach anyway."""
DEPTH = ("PI_SUBAGENT_CHILD", "PI_SUBAGENT_DEPTH", "PI_SUBAGENT_MAX_DEPTH")
"""How deep a program started by agents is nested, and the limit."""
OWN = ("PI_SUBAGENT_*", "PI_SESSION_*", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL", "RETINUE_READONLY")
"""Variables that we set for a command."""
_RUN = (AGENT_ID, "RETINUE_AGENTS", "RETINUE_EXTENSIONS", "RETINUE_MAX_TURNS", "RETINUE_GRACE_TURNS", "RETINUE_FORK")
MARKS = (*OWN, *_RUN)
"""Variables that a run sent to this machine may set; all others are this machine's own."""
SHELL = ("PAGER", "MANPAGER", "SYSTEMD_PAGER", "SSH_ASKPASS_REQUIRE")
HOOK = (
    *(*_FINDING, *_SPEAKING, "SHELL", "TMPDIR", "PWD", *_WINDOWS),
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
)
"""For a hook; its configuration can add more."""
SERVER = (*_FINDING, *_SPEAKING, "SHELL", "TMPDIR")
"""For an MCP server; its configuration can add more."""
CHILD = (
    *(*_FINDING[1:], *_SPEAKING, "SHELL", "NO_COLOR", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "XDG_*"),
    *(*_CERTIFICATES, *_PROXIES, "RETINUE_NO_LOCAL", "RETINUE_DEBUG", "PYTHONFAULTHANDLER"),
    *("PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_OFFLINE", "PI_TELEMETRY", "PI_SKIP_VERSION_CHECK"),
    # The child hides these from its own commands, as we do.
    *(WORKER_DIR, EXPOSED, *PASSWORD_FILES),
    *("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
)
"""For an agent in its own process; PATH is built for it."""
GIT = ("HOME", "USER", "LOGNAME", "TZ", "XDG_CONFIG_HOME", "TMPDIR")
"""For our own git; other settings are passed as options."""
SEARCH = ("HOME", "XDG_CONFIG_HOME", "PATH", "LANG", "LC_ALL")
"""For our own ripgrep: enough to find the user's ignore rules."""
CONVERTER = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""For a program that reads documents."""


_DEEPEST = 1_000_000


def find_own_depth(environment: Mapping[str, str]) -> int:
    """Return the nesting depth of this process; anything that is not a number counts as 0."""
    text = environment.get("PI_SUBAGENT_DEPTH", "").strip()
    # A very long number must not count as 0, or it would bypass the depth limit.
    return min(int(text[:1000]), _DEEPEST) if text.isascii() and text.isdigit() else 0


def count_level(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that count a program as one level, so that agents it starts do not begin at depth 0."""
    limit = environment.get("PI_SUBAGENT_MAX_DEPTH", "")
    return {
        "PI_SUBAGENT_DEPTH": str(find_own_depth(environment) + 1),
        **({"PI_SUBAGENT_MAX_DEPTH": limit} if limit else {}),
    }


def select(inherited: Mapping[str, str], names: Iterable[str], *, with_passwords: bool = False) -> dict[str, str]:
    """The variables that a list names. `*` never covers GIT_ variables, which could redirect git.

    Proxies with a password are passed only to programs that must use the proxy themselves (`with_passwords`).
    """
    listed = tuple(names)
    whole = frozenset(name for name in listed if not name.endswith("*"))
    beginnings = tuple(name[:-1] for name in listed if name.endswith("*"))
    kept = {
        name: value
        for name, value in inherited.items()
        if name in whole or (name.startswith(beginnings) and not name.startswith("GIT_"))
    }
    if with_passwords:
        return kept
    return {name: value for name, value in kept.items() if not (name in _PROXIES and "@" in value)}
