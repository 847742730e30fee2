"""What our own code never does: calls that run or unpack what others wrote, and servers anybody could talk to."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).resolve().parent.parent / "src" / "retinue").rglob("*.py"))
SHIPPED = [path for path in SOURCES if "testing" not in path.parts]
BANNED_CALLS = {
    *("eval", "exec", "os.system", "os.popen", "tempfile.mktemp", "yaml.load", "yaml.unsafe_load", "yaml.full_load"),
    *("marshal.loads", "shelve.open", "subprocess.getoutput", "subprocess.getstatusoutput", "input"),
    *("asyncio.create_subprocess_shell", "webbrowser.open", "webbrowser.open_new_tab", "pty.spawn", "os.startfile"),
}
BANNED_METHODS = {"extractall", "unsafe_load"}
BANNED_MODULES = {"pickle", "dill", "shelve", "marshal", "telnetlib", "xml.dom.minidom", "webbrowser"}
SERVER_CALLS = {"start_server", "start_unix_server", "create_server", "create_unix_server", "listen", "bind", "run_app"}
# `listen` is also how our own bus is heard, and `bind` how names are bound: only sockets count.
OUR_OWN = {"listen", "bind"}
KNOWN_SERVERS = {
    "windows.py": "start_unix_server",  # a session process: in a folder of mode 0700, for its own user only
    "mcp_http.py": "create_server",  # `retinue mcp --http`: loopback unless the user says otherwise, with a token
    "browser_login.py": "start_server",  # the end of a sign-in: loopback, one page, checked by its state
}
OPENS_PAGES = {"login.py": "webbrowser"}
"""`retinue login mcp:NAME` opens the page of the sign-in, whose address was checked; the user has asked for it."""
RUNS_EXTENSIONS = {"loader.py"}
"""Runs the user's own extensions, which is what they are for; trust and lists come before."""


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@cache
def list_nodes(path: Path) -> Sequence[ast.AST]:
    wanted = (ast.Call, ast.Import, ast.ImportFrom)
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, wanted)]


def find_calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [(name_of(node.func), node) for node in list_nodes(path) if isinstance(node, ast.Call)]


@pytest.mark.attack("H10", "C9")
def test_dangerous_calls_are_not_made() -> None:
    found = []
    for path in SHIPPED:
        for name, call in find_calls(path):
            starts = name.startswith(("subprocess.", "asyncio.")) or name.endswith("Popen")
            is_shell = starts and any(word.arg == "shell" for word in call.keywords)
            is_banned = name in BANNED_CALLS or name.rpartition(".")[2] in BANNED_METHODS
            if (is_banned or is_shell) and not (name == "exec" and path.name in RUNS_EXTENSIONS):
                found.append(f"{path.name}:{call.lineno} {name}{' shell=' if is_shell else ''}")
    assert found == []


@pytest.mark.attack("H10")
def test_dangerous_modules_are_not_imported() -> None:
    found = []
    for path in SHIPPED:
        for node in list_nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [name for name in names if name in BANNED_MODULES and OPENS_PAGES.get(path.name) != name]
            found += [f"{path.name}:{node.lineno} {name}" for name in names]
    assert found == []


def test_no_server_is_opened() -> None:
    found = []
    for path in SHIPPED:
        for name, call in find_calls(path):
            owner, _, last = name.rpartition(".")
            is_ours = last in OUR_OWN and "socket" not in owner
            if last in SERVER_CALLS and not is_ours and KNOWN_SERVERS.get(path.name) != last:
                found.append(f"{path.name}:{call.lineno} {name}")
    assert found == []
