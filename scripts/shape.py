"""Prints what has grown large in src: a look, not a gate. A line here is a sign that a noun is missing."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
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


if __name__ == "__main__":
    found = [line for path in sorted(SOURCE.rglob("*.py")) for line in find_large(path)]
    print("\n".join(found) if found else "nothing over its measure")
