"""Commands about the model and how hard it thinks."""

from typing import Any

from msgspec import UNSET, to_builtins

from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link


def to_model(info: ModelInfo) -> dict[str, Any]:
    """A model as pi describes one; what may carry a secret is left out."""
    cost = to_builtins(info.cost)
    if not cost["tiers"]:
        del cost["tiers"]
    model: dict[str, Any] = {
        "id": info.id,
        "name": info.name or info.id,
        "api": info.api,
        "provider": info.provider,
        "baseUrl": info.base_url,
        "reasoning": info.reasoning,
        "input": info.input,
        "cost": cost,
        "contextWindow": info.context_window,
        "maxTokens": info.max_tokens,
    }
    if info.thinking_level_map:
        model["thinkingLevelMap"] = info.thinking_level_map
    return model


async def set_model(link: Link, command: Command) -> Any:
    """Ask another model from the next turn on."""
    return to_model(link.crew.selection.select(command.take_text("provider"), command.take_text("modelId")))


async def cycle_model(link: Link, command: Command) -> Any:
    """Go on to the next model."""
    chosen = link.crew.selection.cycle()
    if chosen is None:
        return None
    return {"model": to_model(chosen.model), "thinkingLevel": chosen.thinking, "isScoped": chosen.is_scoped}


async def get_available_models(link: Link, command: Command) -> Any:
    """The models that can be asked."""
    return {"models": [to_model(info) for info in link.crew.selection.list_models()]}


async def set_thinking_level(link: Link, command: Command) -> Any:
    """Think more or less from the next turn on."""
    link.crew.selection.think(command.take_choice("level", THINKING_LEVELS))
    return UNSET


async def cycle_thinking_level(link: Link, command: Command) -> Any:
    """Go on to the next level."""
    level = link.crew.selection.cycle_thinking()
    return None if level is None else {"level": level}


async def get_available_thinking_levels(link: Link, command: Command) -> Any:
    """The levels that the model has."""
    return {"levels": link.crew.selection.levels}
