"""Renders rows as a markdown table. Standard library only."""

from collections.abc import Sequence


def render_table(rows: Sequence[Sequence[str]], *, max_cell: int = 0) -> str:
    """Render a table whose first row is the header; shorter rows are padded."""
    if not rows:
        return ""
    width = max(len(row) for row in rows)
    lines = [_render_row(row, width, max_cell) for row in rows]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def _render_row(row: Sequence[str], width: int, max_cell: int) -> str:
    cells = [clean_cell(cell, max_cell) for cell in row] + [""] * (width - len(row))
    return f"| {' | '.join(cells)} |"


def clean_cell(text: str, max_cell: int = 0) -> str:
    """Return a text as one line that fits in a table cell."""
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain if not max_cell or len(plain) <= max_cell else plain[: max_cell - 1] + "…"
