"""What all dialogs over the main screen have in common, and what lies under the lists of a menu."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from textual import events
from textual.screen import ModalScreen

from retinue.ui.keys import bind

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

Answer = TypeVar("Answer")


class Overlay(ModalScreen[Answer], Generic[Answer]):
    """Gives something back when it is left."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing can be done with what is not there yet."""
        return self.is_mounted


class Backdrop(ModalScreen[None]):
    """Shows nothing and hears nothing."""

    DEFAULT_CSS = """
    Backdrop { background: transparent; }
    """

    BINDINGS = [bind("tui.select.cancel", "leave", is_first=True)]

    def action_leave(self) -> None:
        """Out of the menu."""
        self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Not for the editor below."""
        event.stop()


@asynccontextmanager
async def hold_keys(app: "RetinueApp") -> AsyncIterator[None]:
    """Keep keys away from the main screen, also between two lists."""
    backdrop = Backdrop()
    await app.push_screen(backdrop)
    try:
        yield
    finally:
        # Else ctrl+c has taken it away already, or the program ends.
        if app.screen_stack[-1:] == [backdrop]:
            await app.pop_screen()
