"""Writes the tables in docs/reference/settings.md from the settings and the docstrings under their fields.

Run `python scripts/settings_reference.py`; `--check` says whether the page is up to date.
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.settings.checks import Setting, read_field
from retinue.settings.schema import SETTINGS, Settings
from retinue.settings.subagents import SUBAGENT_SETTINGS, SubagentsConfig

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
TABLES: dict[str, tuple[Struct, Sequence[Setting]]] = {
    "settings": (Settings(), SETTINGS),
    "subagents": (SubagentsConfig(), SUBAGENT_SETTINGS),
}


def collect_docstrings(defaults: Struct, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The dotted name of each field with the docstring under it."""
    source = textwrap.dedent(inspect.getsource(type(defaults)))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    for field, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name, value = field.target.id, getattr(defaults, field.target.id)
        if isinstance(value, Struct):
            yield from collect_docstrings(value, f"{prefix}{name}.")
        elif isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield prefix + name, " ".join(str(after.value.value).split())


def show_default(value: Any) -> str:
    return "none" if value in (None, {}, (), "") else f"`{json.dumps(value)}`"


def render_table(defaults: Struct, table: Sequence[Setting]) -> str:
    docs = dict(collect_docstrings(defaults))
    rows = ["| key | accepts | default | meaning |", "|---|---|---|---|"]
    for item in table:
        limit = item.limit
        scope = (
            " User file only." if limit.user_only else " A project can only switch it off." if limit.off_only else ""
        )
        default = show_default(read_field(defaults, item))
        cells = (f"`{item.key}`", item.check.accepts, default, docs[item.field] + scope)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def render_page(page: str) -> str:
    """The page with its tables replaced."""
    for name, (defaults, table) in TABLES.items():
        begin, end = f"<!-- {name}: written by scripts/settings_reference.py -->", f"<!-- end of {name} -->"
        head, _, rest = page.partition(begin)
        tail = rest.partition(end)[2]
        page = f"{head}{begin}\n{render_table(defaults, table)}\n{end}{tail}"
    return page


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
