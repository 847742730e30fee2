"""The table of known language servers: their files, how to find the project's root, and how to find the program.

Nothing is installed, and nothing in a workspace is started: a cloned repository must not bring its own server.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.environment import WRITING, select

_ALIASES = {"pyright": "python", "basedpyright": "python", "ty": "python", "go": "gopls", "rust": "rust-analyzer"}
_KNOWN_DIRS = ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")
_HOME_DIRS = (".local/bin", "go/bin", ".cargo/bin", ".dotnet/tools")


class LanguageServer(Struct, frozen=True):
    id: str
    extensions: Mapping[str, str]
    """File extension → language id of the protocol."""
    commands: Sequence[tuple[str, ...]]
    """Programs with arguments, the preferred one first."""
    markers: Sequence[str]
    """Files that mark the root directory of a project."""
    install: str
    """How to install it."""
    wait_s: float = 3.0
    """How many seconds its diagnostics may take."""
    runs_code: bool = True
    """Whether it may run programs of the project: build scripts, plugins, compilers."""


_TYPESCRIPT = {
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    ".tsx": "typescriptreact",
    ".jsx": "javascriptreact",
}
_NODE = ("package.json", "tsconfig.json", "jsconfig.json")
_C = {
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
    ".m": "objective-c",
    ".mm": "objective-cpp",
}

SERVERS: tuple[LanguageServer, ...] = (
    LanguageServer(
        "dart",
        {".dart": "dart"},
        [("dart", "language-server", "--protocol=lsp")],
        ("pubspec.yaml", "analysis_options.yaml"),
        "install the Dart SDK",
    ),
    LanguageServer(
        "typescript",
        _TYPESCRIPT,
        [("typescript-language-server", "--stdio")],
        _NODE,
        "npm install -g typescript typescript-language-server",
    ),
    LanguageServer(
        "vue",
        {".vue": "vue"},
        [("vue-language-server", "--stdio")],
        ("package.json", "vite.config.ts", "vite.config.js"),
        "npm install -g @vue/language-server",
    ),
    LanguageServer(
        "svelte",
        {".svelte": "svelte"},
        [("svelteserver", "--stdio")],
        ("package.json", "svelte.config.js"),
        "npm install -g svelte-language-server",
    ),
    LanguageServer(
        "python",
        {".py": "python", ".pyi": "python"},
        [("ty", "server"), ("basedpyright-langserver", "--stdio"), ("pyright-langserver", "--stdio")],
        ("pyproject.toml", "ty.toml", "pyrightconfig.json", "setup.py", "setup.cfg", "requirements.txt"),
        "pip install 'retinue[lsp]'",
        runs_code=False,
    ),
    LanguageServer(
        "gopls",
        {".go": "go"},
        [("gopls",)],
        ("go.work", "go.mod"),
        "go install golang.org/x/tools/gopls@latest",
    ),
    LanguageServer(
        "kotlin",
        {".kt": "kotlin", ".kts": "kotlin"},
        [("kotlin-lsp", "--stdio"), ("kotlin-language-server",)],
        ("settings.gradle.kts", "settings.gradle", "build.gradle.kts", "build.gradle", "pom.xml"),
        "install kotlin-lsp",
        wait_s=30.0,
    ),
    LanguageServer(
        "swift",
        {".swift": "swift"},
        [("sourcekit-lsp",)],
        ("Package.swift",),
        "install a Swift toolchain",
        wait_s=20.0,
    ),
    LanguageServer(
        "rust-analyzer",
        {".rs": "rust"},
        [("rust-analyzer",)],
        ("Cargo.toml", "rust-project.json"),
        "rustup component add rust-analyzer",
        wait_s=20.0,
    ),
    LanguageServer(
        "clangd",
        _C,
        # Otherwise it would write its index into the project.
        [("clangd", "--background-index=false")],
        ("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile"),
        "install clangd",
        wait_s=20.0,
        runs_code=False,
    ),
)
_BY_EXTENSION = {extension: server for server in SERVERS for extension in server.extensions}


def find_server(path: str) -> LanguageServer | None:
    return _BY_EXTENSION.get(os.path.splitext(path)[1].lower())


def resolve_server(name: str) -> LanguageServer | None:
    """Return the server of a name or alias."""
    wanted = _ALIASES.get(name.strip().lower(), name.strip().lower())
    return next((server for server in SERVERS if server.id == wanted), None)


def find_command(
    server: LanguageServer, environment: Mapping[str, str], workspace: str, *, preferred: str = ""
) -> tuple[str, ...] | None:
    """Return the command of a server; None if it is not installed. `preferred` is the program to look for first."""
    folders = list_folders(environment, workspace)
    for name, *arguments in sorted(server.commands, key=lambda command: not _is_called(command[0], preferred)):
        # Programs next to our own interpreter are as trusted as we are.
        for folder in ([os.path.dirname(sys.executable)] if name == "ty" else []) + folders:
            program = os.path.join(folder, name)
            own = folder == os.path.dirname(sys.executable)
            if os.path.isfile(program) and os.access(program, os.X_OK) and (own or is_outside(program, workspace)):
                return (program, *arguments)
    return None


def _is_called(program: str, preferred: str) -> bool:
    return bool(preferred) and program.removesuffix("-langserver") == preferred


def list_folders(environment: Mapping[str, str], workspace: str) -> list[str]:
    """Return where programs are looked for: absolute directories outside the workspace."""
    home = environment.get("HOME", "")
    known = [*_KNOWN_DIRS, *(os.path.join(home, name) for name in _HOME_DIRS if os.path.isabs(home))]
    folders = [*environment.get("PATH", "").split(os.pathsep), *known]
    return [folder for folder in dict.fromkeys(folders) if is_outside(folder, workspace)]


def find_root(server: LanguageServer, file: str, workspace: str) -> str:
    """Return the project root of a file: the nearest directory with a marker, not above the checkout.

    Paths must be real paths. Without a marker it is the workspace.
    """
    top = find_checkout(workspace) or workspace
    for folder in Path(file).parents:
        if any(os.path.lexists(folder / marker) for marker in server.markers):
            return str(folder)
        if str(folder) == top:
            break
    return workspace


def find_checkout(folder: str) -> str | None:
    """Return the checkout that contains a directory; a checkout of a whole home directory does not count."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for each in (Path(folder), *Path(folder).parents):
        if str(each) != folder and (home.is_relative_to(each) or each.parent == each):
            break
        if os.path.lexists(each / ".git"):
            return str(each)
    return None


def choose_environment(inherited: Mapping[str, str], workspace: str) -> dict[str, str]:
    """Build a server's environment: no keys, and nothing of the workspace on PATH."""
    kept = select(inherited, WRITING)
    folders = [folder for folder in kept.get("PATH", os.defpath).split(os.pathsep) if is_outside(folder, workspace)]
    return {**kept, "PATH": os.pathsep.join(folders)}


def is_outside(path: str, workspace: str) -> bool:
    """Whether a path is absolute and, with links followed, not in the workspace."""
    if not os.path.isabs(path):
        return False
    real = os.path.realpath(path)
    return real != workspace and not real.startswith(workspace.rstrip("/") + "/")
