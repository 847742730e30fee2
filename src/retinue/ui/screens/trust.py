"""Asks whether a folder's own configuration is used, before anything in the folder is read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from retinue.ui.default_keys import bind
from retinue.ui.formats import clean_line
from retinue.ui.screens.overlay import Overlay

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_ANSWERS = (
    ("yes", "this time", (True, False)),
    ("always", "saved for this folder", (True, True)),
    ("no", "this time", (False, False)),
    ("never", "saved for this folder", (False, True)),
)
_NO = 2


class TrustScreen(Overlay[tuple[bool, bool] | None]):
    """The result is (trusted, whether to save the decision). Escape means no; leaving the program decides nothing."""

    DEFAULT_CSS = """
    TrustScreen { align: center middle; background: $background 60%; }
    TrustScreen > #frame {
        width: 90%; max-width: 90; height: auto; max-height: 100%; border: round $warning; padding: 0 1;
        background: $background;
    }
    TrustScreen #about { height: auto; max-height: 100%; }
    TrustScreen #answers { height: auto; min-height: 4; margin: 1 0 0 0; }
    TrustScreen #hint { height: 1; color: $text-muted; }
    """
    BINDINGS = [
        # Ctrl+C is bound to both cancel and clear; in this first question it means that the user wants to leave.
        bind("app.clear", "leave(130)", is_first=True),
        bind("app.exit", "leave(0)", is_first=True),
        bind("tui.select.cancel", "choose(2)"),
        bind("tui.select.up", "move(-1)"),
        bind("tui.select.down", "move(1)"),
        bind("tui.select.confirm", "take"),
        *(bind(f"app.trust.{row[0]}", f"choose({at})") for at, row in enumerate(_ANSWERS)),
    ]
    app: "RetinueApp"

    def __init__(self, project: str, protected: Sequence[str]) -> None:
        super().__init__()
        self._project = project
        self._protected = protected
        self._lit = _NO

    def compose(self) -> ComposeResult:
        names = ", ".join(clean_line(name, 60) for name in self._protected[:8])
        more = f" and {len(self._protected) - 8} more" if len(self._protected) > 8 else ""
        about = Text()
        about.append(clean_line(self._project, 400), style="bold")
        about.append(f" has its own configuration: {names}{more}\n\n")
        about.append("It can start programs and change what agents may do. Use it only if you trust its author.")
        with Vertical(id="frame"):
            with VerticalScroll(id="about", can_focus=False):
                yield Static(about, markup=False)
            yield Static("", id="answers", markup=False)
            keys = self.app.keys
            hint = f"↑↓ enter: select · {keys.show('tui.select.cancel')}: no · {keys.show('app.clear')}: exit"
            yield Static(hint, id="hint", markup=False)

    def on_mount(self) -> None:
        """The answer no is highlighted, so that nothing is accepted by accident."""
        self.app.theme_changed_signal.subscribe(self, lambda theme: self._draw())
        self._draw()

    def action_move(self, step: int) -> None:
        self._lit = (self._lit + step) % len(_ANSWERS)
        self._draw()

    def action_take(self) -> None:
        """Choose the highlighted answer."""
        self.action_choose(self._lit)

    def action_choose(self, place: int) -> None:
        """Choose an answer by its letter."""
        self.dismiss(_ANSWERS[place][2])

    def action_leave(self, status: int) -> None:
        """Exit the program without a decision."""
        self.app.exit(status)

    def _draw(self) -> None:
        accent = self.app.theme_variables.get("accent", "")
        lines = []
        for at, (word, note, _) in enumerate(_ANSWERS):
            key = self.app.keys.show(f"app.trust.{word}")
            is_lit = at == self._lit
            line = Text()
            line.append("❯ " if is_lit else "  ", style=accent)
            line.append(f"{key} ", style="bold")
            line.append(f"{word}, {note}", style=f"bold {accent}" if is_lit else "")
            lines.append(line)
        for answers in self.query("#answers").results(Static):  # missing if the program is about to end
            answers.update(Text("\n").join(lines))
