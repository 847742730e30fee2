"""The line above the editor: what the agent is doing, for how long, and how to stop it."""

from rich.text import Text
from textual.widgets import Static

from retinue.core.figures import format_duration
from retinue.ui.formats import FRAME_S, SPINNER, clean_line
from retinue.ui.state import State

_WORDS = {
    "thinking": "thinking",
    "answering": "answering",
    "working": "working",
    "compacting": "summarising the conversation",
    "waiting": "waiting for its agents",
}


class WorkingLine(Static):
    """One line while the agent works, else hidden."""

    DEFAULT_CSS = """
    WorkingLine {
        height: 1; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    WorkingLine.-busy { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)

    def show(self, state: State, now_ms: int, scope: str = "esc stops it") -> None:
        """Draw the line; `scope` says which key stops what."""
        self.set_class(state.is_busy, "-busy")
        if not state.is_busy:
            return
        frame = SPINNER[int(now_ms / 1000 / FRAME_S) % len(SPINNER)]
        words = _WORDS.get(state.phase, state.phase)
        if state.phase == "working" and state.tool:
            words = f"running {clean_line(state.tool, 40)}"
        line = Text()
        line.append(f"{frame} ", style=self.app.theme_variables.get("accent", ""))
        line.append(words)
        if state.started_ms:
            line.append(f" · {format_duration(max(0, now_ms - state.started_ms))}", style="dim")
        line.append(f" · {scope}", style="dim")
        self.update(line, layout=False)
