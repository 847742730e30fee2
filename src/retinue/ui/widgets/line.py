"""Single-line inputs: one for dialogs, and one that opens for a purpose and closes again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import events
from textual.widgets import Input

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


class TextLine(Input):
    """An input whose editing keys and letters are handled in order, even when they arrive at once."""

    async def _on_key(self, event: events.Key) -> None:
        # The app would run the action only after the key has bubbled up to it, when later letters have been inserted.
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)


class PurposeLine(TextLine):
    """Hidden until opened; Enter passes the text on, Escape closes. Then the conversation gets the focus."""

    DEFAULT_CSS = """
    PurposeLine { display: none; height: 1; padding: 0 1; background: $boost; }
    PurposeLine, PurposeLine:focus { border: none; }
    PurposeLine.-open { display: block; }
    """
    app: "RetinueApp"

    def open(self, hint: str, done: Callable[[str], None]) -> None:
        self._done, self.placeholder, self.value = done, hint, ""
        self.add_class("-open")
        self.focus()

    def _close(self) -> None:
        self.remove_class("-open")
        self.screen.query_one("Conversation").focus()

    async def _on_key(self, event: events.Key) -> None:
        if self.app.keys.means(event.key, "tui.select.cancel"):
            event.stop()
            event.prevent_default()
            self._close()
            return
        await super()._on_key(event)

    async def action_submit(self) -> None:
        self._close()
        self._done(self.value)
