"""Lines to write in: one for dialogs, and one that opens for a purpose and closes again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message
from textual.widgets import Input

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


class TextLine(Input):
    """A line whose editing keys take their turn among the letters, also when all of them come at once."""

    async def _on_key(self, event: events.Key) -> None:
        # The app would run them only after the key has come back to it, and letters behind it had overtaken it.
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)


class PurposeLine(TextLine):
    """Hidden until it is opened; Enter sends, Escape closes."""

    DEFAULT_CSS = """
    PurposeLine { display: none; border: none; height: 1; padding: 0 1; background: $boost; }
    PurposeLine.-open { display: block; }
    """

    app: "RetinueApp"

    @dataclass
    class Sent(Message):
        """What was written, and what for."""

        purpose: str
        text: str

    class Closed(Message):
        """It was closed without a word."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._purpose = ""

    @property
    def is_open(self) -> bool:
        """Whether somebody writes in it."""
        return self.has_class("-open")

    def open(self, purpose: str, hint: str) -> None:
        """Begin to write."""
        self._purpose, self.placeholder, self.value = purpose, hint, ""
        self.add_class("-open")
        self.focus()

    def close(self) -> None:
        """Go away."""
        self.remove_class("-open")

    async def _on_key(self, event: events.Key) -> None:
        if self.app.keys.means(event.key, "tui.select.cancel"):
            event.stop()
            event.prevent_default()
            self.close()
            self.post_message(self.Closed())
            return
        await super()._on_key(event)

    async def action_submit(self) -> None:
        """Send what is there."""
        self.close()
        self.post_message(self.Sent(self._purpose, self.value))
