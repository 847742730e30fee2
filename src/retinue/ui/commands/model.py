"""`/model`: another model; `/thinking`: another level."""

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError, quote
from retinue.core.figures import format_tokens
from retinue.core.messages import THINKING_LEVELS
from retinue.ui.commands.base import Command
from retinue.ui.screens.picker import Choice, Picker

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def choose_model(app: "RetinueApp", words: str) -> None:
    """By name, or out of a list."""
    selection = app.link.crew.selection
    models = selection.list_models()
    now = selection.model.ref
    if words:
        found = [info for info in models if words.lower() in (info.ref.lower(), info.id.lower())]
        found = found or [info for info in models if words.lower() in f"{info.ref} {info.name}".lower()]
        if len(found) != 1:
            names = ", ".join(info.ref for info in (found or models)[:8])
            raise UsageError(f"{quote(words)} names {len(found)} models; there are: {names}")
        chosen: str | None = found[0].ref
    else:
        rows = [
            Choice(
                info.ref,
                info.ref,
                f"{info.name} · {format_tokens(info.context_window)}",
                "●" if info.ref == now else "",
            )
            for info in models
        ]
        chosen = await app.ask(Picker("Model", rows, chosen=now))
    if chosen:
        provider, _, name = chosen.partition("/")
        app.link.note(f"model: {selection.select(provider, name).ref}")


async def choose_thinking(app: "RetinueApp", words: str) -> None:
    """By name, or out of a list of what the model can."""
    selection = app.link.crew.selection
    chosen: str | None = words
    if not words:
        rows = [Choice(level, level, mark="●" if level == selection.thinking else "") for level in selection.levels]
        chosen = await app.ask(Picker("Thinking level", rows, chosen=selection.thinking))
    level = next((each for each in THINKING_LEVELS if each == chosen), None)
    if chosen and level is None:
        raise UsageError(f"{quote(chosen)} is no thinking level; there are: {', '.join(selection.levels)}")
    if level is not None:
        app.link.note(f"thinking: {selection.think(level)}")


MODEL = Command("model", "choose another model", choose_model, "[name]")
THINKING = Command("thinking", "choose how hard it thinks", choose_thinking, "[level]")
