"""RPC commands for model, thinking level, queue modes, compaction and retries."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, to_builtins

from retinue.core.errors import UsageError
from retinue.core.events import Compacted, Event
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.serve.rpc.command import Actions, RpcCommand, RpcConnection, name_actions


def to_model(info: ModelInfo) -> dict[str, Any]:
    """A model as pi describes it, without fields that may contain a secret."""
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


async def cycle_model(link: RpcConnection, command: RpcCommand) -> Any:
    chosen = link.crew.selection.cycle()
    if chosen is None:
        return None
    return {"model": to_model(chosen.model), "thinkingLevel": chosen.thinking, "isScoped": chosen.is_scoped}


async def set_thinking_level(link: RpcConnection, command: RpcCommand) -> Any:
    link.crew.selection.think(command.take_choice("level", THINKING_LEVELS))
    return UNSET


async def cycle_thinking_level(link: RpcConnection, command: RpcCommand) -> Any:
    level = link.crew.selection.cycle_thinking()
    return None if level is None else {"level": level}


_MODES = ("all", "one-at-a-time")
_CHANGES: dict[str, tuple[str, Callable[[RpcCommand], Any]]] = {
    "set_steering_mode": ("steering_mode", lambda command: command.take_choice("mode", _MODES)),
    "set_follow_up_mode": ("follow_up_mode", lambda command: command.take_choice("mode", _MODES)),
    "set_auto_compaction": ("compacts", lambda command: command.take_flag("enabled")),
    "set_auto_retry": ("retries", lambda command: command.take_flag("enabled")),
}
"""Command → the mode of the main agent that it changes, and its value."""


async def _change_mode(link: RpcConnection, command: RpcCommand) -> Any:
    name, read = _CHANGES[command.type or ""]
    setattr(link.crew.tuning, name, read(command))
    return UNSET


async def abort_retry(link: RpcConnection, command: RpcCommand) -> Any:
    """Cancel a scheduled retry."""
    link.crew.abort_retry()
    return UNSET


async def compact(link: RpcConnection, command: RpcCommand) -> Any:
    """Compact the context now; stops the main agent's current work."""
    instructions = command.find_text("customInstructions") or ""
    if link.compacting is not None:
        raise UsageError("the context is already being compacted")
    await link.abort(spares_runs=True)
    results: list[Compacted] = []
    stop_listening = link.crew.listen(lambda event: _collect(event, results), pieces=False)
    link.compacting = asyncio.current_task()
    try:
        done = await link.crew.compact(instructions)
    except asyncio.CancelledError:
        if not link.is_open:
            raise
        # `abort` cancels only this command.
        if link.compacting is not None:
            link.compacting.uncancel()
        raise UsageError("Compaction cancelled") from None
    finally:
        link.compacting = None
        stop_listening()
    if done and results:
        return results[-1].result
    raise UsageError(results[-1].error if results else "Nothing to compact (session too small)")


def _collect(event: Event, results: list[Compacted]) -> None:
    if isinstance(event, Compacted) and event.reason == "manual":
        results.append(event)


ACTIONS: Actions = {
    **name_actions(cycle_model, set_thinking_level, cycle_thinking_level, compact, abort_retry),
    **dict.fromkeys(_CHANGES, _change_mode),
    "set_model": lambda link, command: to_model(
        link.crew.selection.select(command.take_text("provider"), command.take_text("modelId"))
    ),
    "get_available_models": lambda link, command: {
        "models": [to_model(info) for info in link.crew.selection.list_models()]
    },
    "get_available_thinking_levels": lambda link, command: {"levels": link.crew.selection.levels},
}
