"""Single-line inputs: one for dialogs, and one that opens for a purpose and closes again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message
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
    """Hidden until opened; Enter sends, Escape closes."""

    DEFAULT_CSS = """
    PurposeLine { display: none; border: none; height: 1; padding: 0 1; background: $boost; }
    PurposeLine.-open { display: block; }
    """

    app: "RetinueApp"

    @dataclass
    class Sent(Message):
        """The text and its purpose."""

        purpose: str
        text: str

    class Closed(Message):
        """Closed without sending."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._purpose = ""

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, purpose: str, hint: str) -> None:
        self._purpose, self.placeholder, self.value = purpose, hint, ""
        self.add_class("-open")
        self.focus()

    def close(self) -> None:
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
        self.close()
        self.post_message(self.Sent(self._purpose, self.value))
