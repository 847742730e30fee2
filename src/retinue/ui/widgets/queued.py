"""Queued messages for a working agent: shows them, takes them back into the editor, or sends them at once."""

from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Static

from retinue.core.errors import RetinueError
from retinue.ui.formats import clean_line
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.ui.screens.main import MainScreen

_MOST = 5


class QueuedLines(Static):
    """One line per queued message."""

    DEFAULT_CSS = """
    QueuedLines { height: auto; padding: 0 2; color: $text-muted; display: none; }
    QueuedLines.-some { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def show(self, steering: list[str], follow_up: list[str], key: str) -> None:
        """Show the messages; `key` is the key that takes them back."""
        now = (tuple(steering), tuple(follow_up))
        if now == self._shown:
            return
        self._shown = now
        self.set_class(bool(steering or follow_up), "-some")
        lines = [f"↳ next: {clean_line(text, 200)}" for text in steering]
        lines += [f"↳ then: {clean_line(text, 200)}" for text in follow_up]
        more = len(lines) - _MOST
        lines = [*lines[:_MOST], f"  … {more} more"] if more > 0 else lines
        lines += [f"  {key}: edit queued messages"] if key else []
        self.update(Text("\n".join(lines), style="dim"))


def take_back(screen: "MainScreen") -> None:
    """Put the queued messages into the editor, before its text."""
    if not screen.app.link.is_open:
        return
    steering, follow_up = screen.app.link.crew.take_back()
    editor = screen.query_one(Editor)
    words = [*steering, *follow_up, editor.words]
    if steering or follow_up:
        editor.put("\n\n".join(text for text in words if text.strip()))


async def resend(screen: "MainScreen") -> None:
    """Stop the agent and send the queued messages at once; if that fails, put them into the editor."""
    link = screen.app.link
    if not link.is_open or not link.state.is_busy:
        return
    steering, follow_up = link.crew.take_back()
    link.crew.abort(spares_runs=True)
    words = "\n\n".join([*steering, *follow_up])
    if not words.strip():
        return
    await link.crew.rest()
    try:
        screen.app.speech.say(words)
    except RetinueError as error:
        screen.query_one(Editor).put(words)
        screen.notify(str(error), severity="error", markup=False)
