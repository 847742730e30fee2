"""One measured figure against its bar, and how a list of them is shown."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """A number somebody promised, and what it is today."""

    name: str
    measured: float
    unit: str = "×"
    bar: float | None = None
    """None for a figure that is only reported."""
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return "–"
        return "ok" if self.measured <= self.bar else "FALLS SHORT"


def render_table(figures: Sequence[Figure]) -> str:
    """A markdown table that also reads well in a terminal."""
    rows = [("figure", "measured", "bar", "", "what was measured")]
    rows += [
        (figure.name, show(figure.measured, figure.unit), show(figure.bar, figure.unit), figure.verdict, figure.note)
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def show(value: float | None, unit: str) -> str:
    """A number with its unit, as long as it is telling."""
    if value is None:
        return "–"
    if unit == "×" or (value < 10 and value != int(value)):
        return f"{value:.2f} {unit}"
    return f"{value:.0f} {unit}".rstrip()


def describe_machine() -> str:
    """What the figures were taken on."""
    model = platform.machine()
    known = Path("/proc/cpuinfo")
    for line in known.read_text(encoding="utf-8").splitlines() if known.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {model}, {platform.system()} {platform.release()}, Python {platform.python_version()}"
