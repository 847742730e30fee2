"""Base class of menus: choose, ask, confirm, and show errors without leaving the menu."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from retinue.core.errors import RetinueError
from retinue.ui.formats import clean
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

HINT = "enter: select · ←: back"
Made = TypeVar("Made")


class Menu:
    def __init__(self, app: "RetinueApp") -> None:
        self.app = app

    async def run(self) -> None:
        """Show the menu until the user goes back."""
        raise NotImplementedError

    async def choose(
        self, title: str, choices: Sequence[PickerRow], *, about: str = "", chosen: str = "", hint: str = HINT
    ) -> str | None:
        """Choose a row; None to go back."""
        return await self.app.ask(Picker(title, choices, about=about, chosen=chosen, hint=hint))

    async def ask(self, question: str, value: str = "") -> str | None:
        """Ask for a line of text; None to go back."""
        return await self.app.ask(TextPrompt(question, value=value))

    async def confirm(self, question: str, deed: str, *, about: str = "") -> bool:
        rows = [PickerRow("no", "No, go back"), PickerRow("yes", deed)]
        return await self.choose(question, rows, about=about) == "yes"

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        """Show a notification."""
        self.app.notify(clean(text), severity="error" if is_bad else "information", markup=False)

    async def attempt(self, deed: Callable[[], Made]) -> Made | None:
        """Run file operations in a thread; shows a RetinueError and returns None."""
        try:
            return await asyncio.to_thread(deed)
        except RetinueError as error:
            self.tell(str(error), is_bad=True)
            return None
