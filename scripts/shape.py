"""Prints the shape of src: a table of what makes it hard to follow, and what has grown large. A look, not a gate."""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SOURCE / "retinue"
SURFACES = ("fleet", "subagent", "dispatch")
LINES, BODY, METHODS, PARAMETERS, IMPORTS = 500, 60, 20, 8, 25
IMPORTS_OF = {"app.py": 60}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_large(path: Path) -> Iterator[str]:
    """One sentence for each thing in a file that is over its measure."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(SOURCE)
    if (lines := text.count("\n")) > LINES:
        yield f"{name}: {lines} lines (over {LINES})"
    tree = ast.parse(text)
    imports = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)
    if imports > (limit := IMPORTS_OF.get(path.name, IMPORTS)):
        yield f"{name}: {imports} imports (over {limit})"
    for node in ast.walk(tree):
        if isinstance(node, Function) and (body := count_body(node)) > BODY:
            yield f"{name}:{node.lineno}: {node.name} has {body} lines (over {BODY})"
        if isinstance(node, ast.ClassDef):
            yield from find_in_class(name, node)


def find_in_class(name: Path, node: ast.ClassDef) -> Iterator[str]:
    """The same for one class."""
    methods = [item for item in node.body if isinstance(item, Function)]
    if len(methods) > METHODS:
        yield f"{name}:{node.lineno}: {node.name} has {len(methods)} methods (over {METHODS})"
    for method in methods:
        parameters = len(method.args.args) + len(method.args.kwonlyargs) - 1
        if method.name == "__init__" and parameters > PARAMETERS:
            yield f"{name}:{method.lineno}: {node.name} takes {parameters} parameters (over {PARAMETERS})"


def count_body(node: Function) -> int:
    """Lines of a function without its signature and docstring."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or node.lineno) - first.lineno + 1


def count_code(path: Path) -> int:
    """Lines of a file that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type not in quiet]
    lines = {line for each in tokens for line in range(each.start[0], each.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def count_nodes(parts: tuple[str, ...], is_meant: Callable[[ast.AST], bool]) -> int:
    """How many nodes of a kind there are in these packages."""
    paths = [path for part in parts for path in (PACKAGE / part).rglob("*.py")]
    return sum(is_meant(node) for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def is_call_of(name: str) -> Callable[[ast.AST], bool]:
    """Whether a node calls something of that name."""
    return lambda node: isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_state_check(node: ast.AST) -> bool:
    """`assert self._x is not None`."""
    return isinstance(node, ast.Assert) and re.match(r"self\._\w+ is not None", ast.unparse(node.test)) is not None


def is_capability_check(node: ast.AST) -> bool:
    """`getattr(x, "name", None)`."""
    return is_call_of("getattr")(node) and bool(re.search(r", '\w+', None\)$", ast.unparse(node)))


def is_surface_name(node: ast.AST) -> bool:
    """The name of a surface as text."""
    return isinstance(node, ast.Constant) and node.value in SURFACES


def measure() -> Iterator[tuple[str, str, str]]:
    """What is measured, how it is, and how it should be."""
    files = sorted(PACKAGE.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trace = subprocess.run([sys.executable, Path(__file__).with_name("start_path.py")], capture_output=True, check=True)
    start = json.loads(trace.stdout.splitlines()[-1])
    classes = Counter(
        node.name
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    optional = ("durable", "cli", "settings")
    aware = [path for path, text in texts.items() if re.search(r"(?i)\b(cluster|worker)s?\b", text)]
    lines, code = sum(text.count("\n") for text in texts.values()), sum(map(count_code, files))
    yield "files that run before the first model request", str(start["files"]), "95"
    yield "call frames at a child's model call", str(start["frames"]), "17"
    yield "places that build a RunSetup", str(count_nodes(("",), is_call_of("RunSetup"))), "1"
    yield "places that build a RunRequest", str(count_nodes(("",), is_call_of("RunRequest"))), "one per surface"
    yield "files in app", str(sum(path.is_relative_to(PACKAGE / "app") for path in files)), "15"
    yield "files in src", str(len(files)), "560"
    yield "lines in src (of code)", f"{lines} ({code})", "107000"
    yield "modules whose name ends in -ing", str(sum(path.stem.endswith("ing") for path in files)), "0"
    yield "public class names used more than once", str(sum(count > 1 for count in classes.values())), "15"
    yield "files that mention idle_s", str(sum("idle_s" in text for text in texts.values())), "7"
    yield "assert self._x is not None in app and engine", str(count_nodes(("app", "engine"), is_state_check)), "0"
    yield 'getattr(x, "name", None) in app and engine', str(count_nodes(("app", "engine"), is_capability_check)), "1"
    yield "surface names in engine", str(count_nodes(("engine",), is_surface_name)), "0"
    outside = sum(path.relative_to(PACKAGE).parts[0] not in optional for path in aware)
    yield "files outside durable, cli and settings that say cluster or worker", str(outside), "10"


if __name__ == "__main__":
    for what, now, target in measure():
        print(f"{what:<68}{now:>15}   target {target}")
    found = [line for path in sorted(SOURCE.rglob("*.py")) for line in find_large(path)]
    print("\n", "\n".join(found) if found else "nothing over its measure", sep="")
