"""Writes the table in docs/reference/settings.md from the settings and the docstrings under their fields.

Run `python scripts/settings_reference.py`; `--check` says whether the page is up to date.
"""

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from retinue.settings import schema
from retinue.settings.checks import read_field

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
BEGIN, END = "<!-- settings: written by scripts/settings_reference.py -->", "<!-- end of settings -->"
SECTIONS = {"Compaction": "compaction.", "Retry": "retry.", "Settings": ""}


def collect_docstrings() -> dict[str, str]:
    """The docstring under each field, by dotted field name."""
    found = {}
    for item in ast.parse(inspect.getsource(schema)).body:
        if isinstance(item, ast.ClassDef) and item.name in SECTIONS:
            for field, after in zip(item.body, item.body[1:], strict=False):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                    found[SECTIONS[item.name] + field.target.id] = inspect.cleandoc(after.value.value)
    return found


def show_default(value: Any) -> str:
    return "none" if value in (None, {}, ()) else f"`{json.dumps(value)}`"


def render_table() -> str:
    docs = collect_docstrings()
    rows = ["| key | accepts | default | meaning |", "|---|---|---|---|"]
    for item in schema.SETTINGS:
        meaning = docs[item.field] + (" User file only." if item.user_only else "")
        cells = (f"`{item.key}`", item.check.accepts, show_default(read_field(schema.Settings(), item)), meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def render_page(page: str) -> str:
    """The page with its table replaced."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n{render_table()}\n{END}{tail}"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    written = render_page(page)
    if "--check" in sys.argv:
        print(
            "up to date" if page == written else f"{PAGE} is not up to date: run python scripts/settings_reference.py"
        )
        return 0 if page == written else 1
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
