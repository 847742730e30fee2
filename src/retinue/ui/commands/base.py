"""What a slash command is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

Run = Callable[["RetinueApp", str], Awaitable[None]]
"""Does it, with the words after its name. May raise RetinueError, which is shown."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """Something the user can call."""

    name: str
    help: str
    run: Run
    hint: str = ""
    """What may follow the name."""
    needs_rest: bool = False
    """It cannot be done while the agent works."""
