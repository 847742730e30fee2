"""Base class of dialogs over the main screen, and the backdrop behind nested menus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from textual import events
from textual.screen import ModalScreen

from retinue.ui.default_keys import bind

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

Answer = TypeVar("Answer")


class Overlay(ModalScreen[Answer], Generic[Answer]):
    """A modal screen with a result."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore actions before the screen is mounted."""
        return self.is_mounted


class Backdrop(ModalScreen[None]):
    """An invisible screen that consumes keys."""

    DEFAULT_CSS = """
    Backdrop { background: transparent; }
    """

    BINDINGS = [bind("tui.select.cancel", "leave", is_first=True)]

    def action_leave(self) -> None:
        self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Keep keys from the editor below."""
        event.stop()


@asynccontextmanager
async def hold_keys(app: "RetinueApp") -> AsyncIterator[None]:
    """Keep keys from the main screen while menus are open, also between two lists."""
    backdrop = Backdrop()
    await app.push_screen(backdrop)
    try:
        yield
    finally:
        # Ctrl+C may have removed it already, or the program may be ending.
        if app.screen_stack[-1:] == [backdrop]:
            await app.pop_screen()
