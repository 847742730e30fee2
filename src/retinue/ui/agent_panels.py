"""The agent tree above the editor, the agent list below it, and the keys that select in the list.

Limits the height of both so that the editor and the footer always stay visible.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Static

from retinue.core.run import Run
from retinue.ui.formats import FRAME_S
from retinue.ui.tree import MOST_LINES, FinishedRuns, TreeOptions, choose_runs, render_tree
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.fleet import LEAST_ROWS, ROWS, FleetList

if TYPE_CHECKING:
    from retinue.ui.screens.main import MainScreen


class AgentTree(Static):
    """Shows runs as a tree; display only."""

    DEFAULT_CSS = """
    AgentTree {
        height: auto; max-height: 12; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    AgentTree.-some { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._lines: list[Text] = []

    def show(self, runs: Sequence[Run], outlook: TreeOptions) -> None:
        lines = render_tree(runs, outlook)
        if lines == self._lines:
            return
        is_other_size = len(lines) != len(self._lines)
        self._lines = lines
        self.set_class(bool(lines), "-some")
        self.update(Text("\n").join(lines), layout=is_other_size)


class PanelLayout:
    """Decides which runs the tree and the list show, and how many lines each may have."""

    def __init__(self, screen: "MainScreen") -> None:
        self._screen = screen
        self._link = screen.app.link
        self._tree = screen.query_one(AgentTree)
        self._fleet = screen.query_one(FleetList)
        self._lingering = FinishedRuns()
        self.is_moving = False
        """Whether runs are shown, whose figures change without events."""

    def show(self, now_ms: int) -> None:
        """Show the current runs."""
        if not self._link.is_open:
            return
        lookout, own = self._link.crew.lookout, self._link.crew.crew_settings
        runs, frame = lookout.runs, int(now_ms / 1000 / FRAME_S)
        shown = self._lingering.choose(choose_runs(runs, own.widget_mode), self._link.state.rounds, now_ms)
        listed = [run for run in runs if run.started_ms and own.fleet_view]
        room = self._find_room() if shown or listed else 0
        rows = self._share(room, has_tree=bool(shown))
        self._fleet.show(listed, now_ms, frame, rows)
        outlook = TreeOptions(
            max(0, self._screen.size.width - 4),
            now_ms,
            frame,
            find_window=lookout.find_window,
            glimpse=self._link.overheard.glimpse,
            colors=self._screen.app.theme_variables,
            mode=own.widget_display_mode,
            most_lines=min(MOST_LINES, room - self._fleet.row_count),
        )
        self._tree.show(shown, outlook)
        self.is_moving = bool(shown) or self._fleet.has_rows

    def take_key(self, key: str) -> bool:
        """Handle a key for the list; False if it is not for it. Down or left in an empty editor opens the list."""
        fleet, app = self._fleet, self._screen.app
        keys = app.keys
        if not fleet.is_active:
            is_empty = not self._screen.query_one(Editor).text
            return keys.means(key, "app.fleet.open") and is_empty and fleet.activate()
        if step := keys.step(key, "tui.select.up", "tui.select.down"):
            fleet.move(step)
            return True
        chosen = fleet.chosen
        fleet.leave()
        if keys.means(key, "tui.select.confirm"):
            app.view_run(chosen)
            return True
        return keys.means(key, "tui.select.cancel")

    def _find_room(self) -> int:
        """Lines for agents: two thirds of the screen minus the other widgets; the rest belongs to the conversation."""
        others = self._screen.query("#bottom > *").exclude("#agents").exclude("#fleet")
        used = sum(each.outer_size.height for each in others if each.display)
        least = 4 if self._screen.has_class("-asking") else 0  # the agents stay visible beside a question
        return max(least, self._screen.size.height * 2 // 3 - used)

    def _share(self, room: int, *, has_tree: bool) -> int:
        """Rows of the list: half of the room if there is a tree, and at least LEAST_ROWS while the list is active."""
        rows = min(ROWS, room // 2 if has_tree else room)
        return max(rows, LEAST_ROWS) if self._fleet.is_active else rows
