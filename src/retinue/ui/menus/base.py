"""What all menus do: ask, tell, and let a failure be told without ending the walk."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from retinue.core.errors import RetinueError
from retinue.ui.formats import clean
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import Asking

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

HINT = "→ enter · ← back"
Made = TypeVar("Made")


class Menu:
    """One list of a walk."""

    def __init__(self, app: "RetinueApp") -> None:
        self.app = app

    async def run(self) -> None:
        """Walk through it until one goes back."""
        raise NotImplementedError

    async def choose(
        self, title: str, choices: Sequence[PickerRow], *, about: str = "", chosen: str = "", hint: str = HINT
    ) -> str | None:
        """One of some rows; None to go back."""
        return await self.app.ask(Picker(title, choices, about=about, chosen=chosen, hint=hint))

    async def ask(self, question: str, value: str = "") -> str | None:
        """A line; None to go back."""
        return await self.app.ask(Asking(question, value=value))

    async def confirm(self, question: str, deed: str, *, about: str = "") -> bool:
        """Whether it is really to be done."""
        rows = [PickerRow("no", "No, go back"), PickerRow("yes", deed)]
        return await self.choose(question, rows, about=about, hint="→ enter · ← back") == "yes"

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        """Say something over whatever is shown."""
        self.app.notify(clean(text), severity="error" if is_bad else "information", markup=False)

    async def attempt(self, deed: Callable[[], Made]) -> Made | None:
        """Do something with files, beside the screen; what goes wrong is told, and None comes back."""
        try:
            return await asyncio.to_thread(deed)
        except RetinueError as error:
            self.tell(str(error), is_bad=True)
            return None
