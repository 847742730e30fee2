"""The agent list below the editor: the main agent and its runs, which can be selected and viewed."""

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from retinue.core.figures import format_duration, format_tokens
from retinue.core.run import Run
from retinue.ui.formats import clean_line
from retinue.ui.tree import find_sign

ROWS = 5
LEAST_ROWS = 3
"""With fewer rows, the line about hidden rows would hide the selected one."""
LINGER_MS = 4000
MAIN = "main"


class FleetList(Static):
    """`main` and the runs, oldest first, in at most ROWS rows that include the selected one."""

    DEFAULT_CSS = """
    FleetList { height: auto; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    FleetList.-some { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._runs: list[Run] = []
        self.chosen = MAIN
        """The id of the selected run; `main` for the main agent."""
        self.is_active = False
        """Whether the arrow keys select in the list."""
        self._drawn = ("", 0, False)
        self._rows = ROWS
        self._frame = (0, 0)

    @property
    def row_count(self) -> int:
        """The number of rows it takes now."""
        return min(self._rows, len(self._runs) + 1) if self.has_class("-some") else 0

    @property
    def has_rows(self) -> bool:
        return bool(self._runs)

    def show(self, runs: Sequence[Run], now_ms: int, frame: int, rows: int = ROWS) -> None:
        """Draw the runs; finished ones disappear after LINGER_MS unless the list is active."""
        self._rows, self._frame = rows, (now_ms, frame)
        self._runs = [
            run
            for run in runs
            if not run.status.is_final or now_ms - run.finished_ms < LINGER_MS or (self.is_active and run.started_ms)
        ]
        if self.chosen not in (MAIN, *(run.id for run in self._runs)):
            self.chosen = MAIN
        self.set_class((bool(self._runs) and rows >= LEAST_ROWS) or self.is_active, "-some")
        self._draw(now_ms, frame)

    def redraw(self) -> None:
        """Redraw because the theme has changed."""
        self._drawn = ("", 0, False)
        self._draw(*self._frame)

    def activate(self) -> bool:
        """Use the arrow keys for the list; False if it is empty."""
        if not self._runs:
            return False
        self.is_active = True
        return True

    def leave(self) -> None:
        """Stop using the arrow keys."""
        self.is_active, self.chosen = False, MAIN

    def move(self, step: int) -> None:
        """Select another row; above the first one, leave the list."""
        ids = [MAIN, *(run.id for run in self._runs)]
        place = ids.index(self.chosen) + step
        if place < 0:
            self.leave()
        else:
            self.chosen = ids[min(place, len(ids) - 1)]

    def _draw(self, now_ms: int, frame: int) -> None:
        rows = self._rows
        if not self.has_class("-some"):
            return
        ids = [MAIN, *(run.id for run in self._runs)]
        place = ids.index(self.chosen)
        first = max(0, min(place - rows // 2, len(ids) - rows))
        shown = [
            self._render_main() if at == 0 else self._render_run(self._runs[at - 1], now_ms, frame)
            for at in range(first, min(first + rows, len(ids)))
        ]
        if first:
            shown[0] = Text(f"  ↑ {first + 1} more", style="dim")
        rest = len(ids) - first - rows
        if rest > 0:
            shown[-1] = Text(f"  ↓ {rest + 1} more", style="dim")
        drawn = Text("\n").join(shown)
        key = (drawn.plain, place, self.is_active)
        if key != self._drawn:
            is_other_size = key[0].count("\n") != self._drawn[0].count("\n")
            self._drawn = key
            self.update(drawn, layout=is_other_size)

    def _mark(self, run_id: str) -> str:
        return "❯ " if self.is_active and run_id == self.chosen else "  "

    def _render_main(self) -> Text:
        style = "bold" if self.is_active and self.chosen == MAIN else "dim"
        return Text(f"{self._mark(MAIN)}{MAIN}", style=style)

    def _render_run(self, run: Run, now_ms: int, frame: int) -> Text:
        sign, color = find_sign(run, frame)
        line = Text(self._mark(run.id))
        line.append(f"{sign} ", style=self.app.theme_variables.get(color, "dim"))
        is_chosen = self.is_active and run.id == self.chosen
        line.append(f"{clean_line(run.agent, 30)} ", style="bold" if is_chosen else "")
        line.append(clean_line(run.description, 60), style="" if is_chosen else "dim")
        seconds = format_duration((run.finished_ms or now_ms) - run.started_ms) if run.started_ms else "queued"
        tokens = f" · ↓ {format_tokens(run.usage.output)} tokens" if run.usage.output else ""
        place = f" · on {clean_line(run.machine, 30)}" if run.machine else ""
        line.append(f"  {seconds}{tokens}{place}", style="dim")
        line.truncate(max(4, self.size.width - 4), overflow="ellipsis")
        return line
