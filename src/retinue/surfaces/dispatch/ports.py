"""What the tool of the `dispatch` surface works with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retinue.core.definition import Definition
from retinue.core.model import ModelInfo
from retinue.features.hooks.board import Board
from retinue.models.resolve import Choice
from retinue.surfaces.base import Caller

DEFAULT_STEPS = 200


@dataclass(frozen=True, slots=True)
class DispatchPorts:
    """Everything one run's `dispatch_agent` may ask for."""

    caller: Caller
    find: Callable[[str], Definition | None]
    """The agent of this name, also one that is off."""
    is_enabled: Callable[[], bool]
    """Whether anything is dispatched at all."""
    is_disabled: Callable[[str], bool]
    """Whether an agent is switched off by its name."""
    find_model: Callable[[str], Choice | None]
    """The model a profile names, as `model@API_KEY_ENV`, an id or a name; None when there is none.

    Raises OutOfReach.
    """
    open_model: Callable[[ModelInfo], Any]
    """Raises RetinueError when it cannot be asked, for want of a key."""
    board: Callable[[], Board]
    """The hooks of the run whose tool this is."""
    max_steps: int = DEFAULT_STEPS
    """Of agents that name no limit."""
    base_depth: int = 0
    """How deep the main agent is itself, when another one has started it."""
