"""The definition of a slash command."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

Run = Callable[["RetinueApp", str], Awaitable[None]]
"""Runs a command with the text after its name. May raise RetinueError, which is shown."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    name: str
    help: str
    run: Run
    hint: str = ""
    """Describes the arguments."""
    needs_rest: bool = False
    """Only available while the agent is idle."""
