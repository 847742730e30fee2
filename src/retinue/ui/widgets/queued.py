"""What waits to be said: visible until it is used, and taken back into the editor by a key."""

from rich.text import Text
from textual.widgets import Static

from retinue.ui.formats import clean_line

_MOST = 5


class QueuedLines(Static):
    """One line for each message that waits."""

    DEFAULT_CSS = """
    QueuedLines { height: auto; padding: 0 2; color: $text-muted; display: none; }
    QueuedLines.-some { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def show(self, steering: list[str], follow_up: list[str], key: str = "alt+up") -> None:
        """Show other messages; `key` takes them back."""
        now = (tuple(steering), tuple(follow_up))
        if now == self._shown:
            return
        self._shown = now
        self.set_class(bool(steering or follow_up), "-some")
        lines = [f"↳ next: {clean_line(text, 200)}" for text in steering]
        lines += [f"↳ then: {clean_line(text, 200)}" for text in follow_up]
        more = len(lines) - _MOST
        lines = [*lines[:_MOST], f"  … {more} more"] if more > 0 else lines
        self.update(
            Text("\n".join([*lines, *([f"  {key} takes them back into the editor"] if key else [])]), style="dim")
        )
