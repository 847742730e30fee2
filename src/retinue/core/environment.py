"""Which variables of the environment a process that we start is given: lists of names, for each kind of program. Pure.

Nobody gets what no list names, so a secret gets nowhere by having a name nobody thought of. A name may end with a star.
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
"""Where repositories and workspaces are kept of runs that others have sent to this machine."""
EXPOSED = "RETINUE_EXPOSED"
"""What of that one run may see: absolute paths, one a line."""
BUDGET_FD = "RETINUE_BUDGET_FD"
"""The descriptor through which a process of ours draws on the budget of its run."""
PASSWORD_FILES = ("PGPASSFILE", "PGSERVICEFILE")
"""Name files with passwords of databases."""
READING = (*_FINDING, *_SPEAKING, "PWD", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
"""A command that may change nothing."""
WRITING = (
    *(*READING, "SHELL", "CI", "PYENV_ROOT", "PYENV_VERSION"),
    *("GOPATH", "GOROOT", "GOBIN", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "JAVA_HOME", "NVM_DIR", "NVM_BIN"),
    *("VOLTA_HOME", "PNPM_HOME", "DENO_DIR", "GEM_HOME", "ANDROID_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
    *(*_CERTIFICATES, "MAKEFLAGS", *_PROXIES),
)
"""A command that builds: where tools are, and the way to the network."""
UNCONFINED = (
    *(*WRITING, "TMPDIR", "COLORTERM", "NO_COLOR", "EDITOR", "VISUAL", "MANPATH", "INFOPATH", "LD_LIBRARY_PATH"),
    *("XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GPG_TTY"),
    *("SHLVL", "HOSTNAME", "DOCKER_HOST", "KUBECONFIG", "BASH_ENV", "ENV", "PYTHONPATH", "NODE_PATH", *_WINDOWS),
)
"""A command without a boundary: also what leads to programs of the user's own, which it can reach anyway."""
DEPTH = ("PI_SUBAGENT_CHILD", "PI_SUBAGENT_DEPTH", "PI_SUBAGENT_MAX_DEPTH")
"""How deep a program is that agents have started, and how deep it may be."""
OWN = ("PI_SUBAGENT_*", "PI_SESSION_*", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL", "RETINUE_READONLY")
"""What we set ourselves for a command."""
MARKS = (*OWN, "RETINUE_AGENTS", "RETINUE_EXTENSIONS", "RETINUE_MAX_TURNS", "RETINUE_GRACE_TURNS")
"""What a run that was sent here may be told by its environment; all else is this machine's own."""
SHELL = ("PAGER", "MANPAGER", "SYSTEMD_PAGER", "SSH_ASKPASS_REQUIRE")
HOOK = (
    *(*_FINDING, *_SPEAKING, "SHELL", "TMPDIR", "PWD", *_WINDOWS),
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
)
"""A hook; what else it wants its entry says."""
SERVER = (*_FINDING, *_SPEAKING, "SHELL", "TMPDIR")
"""An MCP server; what else it wants its entry says."""
CHILD = (
    *(*_FINDING[1:], *_SPEAKING, "SHELL", "NO_COLOR", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "XDG_*"),
    *(*_CERTIFICATES, *_PROXIES, "RETINUE_NO_LOCAL", "RETINUE_DEBUG", "PYTHONFAULTHANDLER"),
    *("PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_OFFLINE", "PI_TELEMETRY", "PI_SKIP_VERSION_CHECK"),
    # What it hides from its own commands, as we do.
    *(WORKER_DIR, EXPOSED, *PASSWORD_FILES),
    *("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
)
"""An agent in a process of its own; its search path is made for it."""
GIT = ("HOME", "USER", "LOGNAME", "TZ", "XDG_CONFIG_HOME", "TMPDIR")
"""Our own git, which is told all else."""
SEARCH = ("HOME", "XDG_CONFIG_HOME", "PATH", "LANG", "LC_ALL")
"""Our own ripgrep: enough to find the user's own ignore rules."""
CONVERTER = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""A program that reads documents."""


def select(inherited: Mapping[str, str], names: Iterable[str], *, with_passwords: bool = False) -> dict[str, str]:
    """The variables that a list names. No star covers git's own, which could point it anywhere.

    Only who must get through a proxy itself is given one with a password in it.
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
