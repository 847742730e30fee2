"""The list of agents below the editor: what each does, and the keys that select one and open it.

Its height is limited so that the editor and the footer always stay visible; on a low screen it is one line.
"""

from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Static

from retinue.core.run import Run
from retinue.ui.agent_rows import RowOptions, order_runs, render_heading, render_row
from retinue.ui.formats import FRAME_S
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.question import TIGHT_ROWS

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

MOST_LINES = 12
REST_LINES = 4
"""Maximum lines, with the heading, while no agent works and none is being selected."""
ASKED_LINES = 5
"""Maximum lines beside a question, where the list may take room from the conversation."""
LOW_ROWS = 8
"""On screens with fewer rows, the list is hidden."""
MAIN = "main"


class AgentList(Static):
    """A heading and one row for each run: running first, then queued, then finished."""

    DEFAULT_CSS = """
    AgentList { height: auto; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    AgentList.-some { display: block; }
    """
    app: "RetinueApp"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._runs: list[Run] = []
        self.chosen = MAIN
        """The id of the selected run; `main` for the heading, which stands for the main agent."""
        self.is_active = False
        """Whether the arrow keys select in the list."""
        self._drawn: tuple[str, str, bool] = ("", "", False)

    @property
    def has_rows(self) -> bool:
        return bool(self._runs)

    @property
    def is_moving(self) -> bool:
        """Whether the list shows runs whose figures change without events."""
        return any(not run.status.is_final for run in self._runs)

    def show(self, now_ms: int) -> None:
        """Draw the current runs."""
        link = self.app.link
        if not link.is_open:
            return
        session_runs, settings = link.crew.session_runs, link.crew.crew_settings
        self._runs = _choose(session_runs.runs, settings.widget_mode, is_all=settings.fleet_view)
        if self.chosen not in (MAIN, *(run.id for run in self._runs)):
            self.chosen = MAIN
        most = self._find_room() if self._runs else 0
        self.is_active = self.is_active and most > 0
        self.set_class(most > 0, "-some")
        if most > 0:
            options = RowOptions(
                max(0, self.screen.size.width - 4),
                now_ms,
                int(now_ms / 1000 / FRAME_S),
                find_window=session_runs.find_window,
                activity=link.subagent_streams.activity,
                colors=self.app.theme_variables,
                mode=settings.widget_display_mode,
            )
            self._draw(self._list_lines(options, most))

    def redraw(self) -> None:
        """Redraw because the theme has changed."""
        self._drawn = ("", "", False)
        self.show(self.app.now_ms())

    def take_key(self, key: str) -> bool:
        """Handle a key for the list; False if it is not for it. Down or left in an empty editor opens the list."""
        keys, is_taken = self.app.keys, True
        if not self.is_active:
            is_empty = self.has_rows and not self.screen.query_one(Editor).text
            if not (is_empty and keys.means(key, "app.fleet.open") and self.app.link.crew.crew_settings.fleet_view):
                return False
            self.is_active = True
        elif step := keys.step(key, "tui.select.up", "tui.select.down"):
            self._move(step)
        else:
            chosen, self.chosen, self.is_active = self.chosen, MAIN, False
            is_taken = keys.means(key, "tui.select.cancel")
            if keys.means(key, "tui.select.confirm"):
                self.app.view_run(chosen)
                is_taken = True
        self.show(self.app.now_ms())
        return is_taken

    def _move(self, step: int) -> None:
        """Select another row; above the heading, leave the list."""
        ids = [MAIN, *(run.id for run in self._runs)]
        place = ids.index(self.chosen) + step
        self.is_active = place >= 0
        self.chosen = ids[max(0, min(place, len(ids) - 1))]

    def _find_room(self) -> int:
        """Lines for the list: half of the screen minus the other widgets; the rest belongs to the conversation."""
        rows = self.screen.size.height
        used = sum(each.outer_size.height for each in self.screen.query("#bottom > *") if each.display and each != self)
        most = MOST_LINES if self.is_active or self.is_moving else REST_LINES
        room = min(most, rows // 2 - used)
        if self.screen.has_class("-asking") and rows >= TIGHT_ROWS:
            return max(REST_LINES, min(room, ASKED_LINES))
        return room if room > 2 else int(rows >= LOW_ROWS)

    def _list_lines(self, options: RowOptions, most: int) -> list[Text]:
        runs, ids = self._runs, [run.id for run in self._runs]
        known, place = {*ids}, ids.index(self.chosen) if self.chosen != MAIN else -1
        is_lit = self.is_active and place < 0
        heading = Text("❯ " if is_lit else "").append_text(render_heading(runs, options, self._find_hint()))
        heading.truncate(options.width, overflow="ellipsis")

        def draw(at: int) -> Text:
            run = runs[at]
            is_orphan = run.depth > 1 and run.parent_id not in known
            return render_row(run, options, is_chosen=self.is_active and at == place, is_orphan=is_orphan)

        if most == 1:
            return [draw(place) if self.is_active and not is_lit else heading]
        rows = min(most - 1, len(runs))
        first = max(0, min(place - rows // 2, len(runs) - rows))
        # Draw only visible rows: there may be hundreds of runs, drawn twelve times a second.
        lines = [draw(at) for at in range(first, first + rows)]
        if first:
            lines[0] = Text(f"    ↑ {first + 1} more", style="dim")
        if rest := len(runs) - first - rows:
            lines[-1] = Text(f"    +{rest + 1} more", style="dim")
        return [heading, *lines]

    def _find_hint(self) -> str:
        show = self.app.keys.show
        if self.is_active:
            return f"{show('tui.select.confirm')}: open · {show('tui.select.cancel')}: back"
        return f"{show('app.fleet.open')}: select" if self.app.link.crew.crew_settings.fleet_view else ""

    def _draw(self, lines: list[Text]) -> None:
        drawn = Text("\n").join(lines)
        now = (drawn.plain, self.chosen, self.is_active)
        if now != self._drawn:
            is_other_size = now[0].count("\n") != self._drawn[0].count("\n")
            self._drawn = now
            self.update(drawn, layout=is_other_size)


def _choose(runs: list[Run], mode: str, *, is_all: bool) -> list[Run]:
    """The runs to list, in order: those in the background with their parents, or all, or none."""
    parents = {run.parent_id for run in runs if run.is_background}

    def is_listed(run: Run) -> bool:
        is_wanted = mode == "all" or (mode == "background" and (run.is_background or run.id in parents))
        return is_all or is_wanted

    return order_runs([run for run in runs if is_listed(run)])
