"""`/model`, `/thinking`, `/scoped-models`: choose the model, thinking level and models that keys cycle through."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.errors import UsageError, quote
from retinue.core.figures import format_tokens
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.ui.commands.login import add_key
from retinue.ui.formats import clean_line
from retinue.ui.screens.picker import ModelPicker, PickerRow, ThinkingPicker
from retinue.ui.screens.scope_picker import ModelDraft, ScopePicker

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def choose_model(app: "RetinueApp", words: str) -> None:
    """Choose a model by name or from a list."""
    selection = app.link.crew.selection
    models, locked = selection.list_models(), selection.list_locked()
    now, is_kept = selection.model.ref, False
    if words:
        found = _find_named(words.lower(), models) or _find_named(words.lower(), locked)
        is_new = not found and "/" in words
        if len(found) != 1 and not is_new:
            names = ", ".join(info.ref for info in (found or models)[:8])
            raise UsageError(f"{quote(words)} matches {len(found)} models. Choose one of: {names}")
        chosen: str | None = words if is_new else found[0].ref
    else:
        known = {info.ref: info for info in models}
        draft = ModelDraft(tuple(known), tuple(selection.scope))
        rows = [
            PickerRow(
                info.ref,
                info.ref,
                f"{info.name} · {format_tokens(info.context_window)}",
                "●" if info.ref == now else "",
            )
            # Models that keys cycle through come first: users mostly want one of them.
            for info in (known[ref] for ref in draft.rows if ref in known)
        ]
        rows += [
            PickerRow(info.ref, info.ref, f"{info.name} · needs a key: /login {info.provider}", is_off=True)
            for info in locked
        ]
        keys = {"save": app.keys.show("app.models.save"), "tab": app.keys.show("tui.input.tab")}
        picker = ModelPicker(rows, [ref for ref in known if draft.has(ref)], chosen=now, **keys)
        chosen, is_kept = await app.ask(picker), picker.is_kept
    if chosen:
        provider, _, name = chosen.partition("/")
        if any(info.ref == chosen for info in locked) and not (await add_key(app, provider, chosen) and is_kept):
            return
        info = selection.select(provider, name)
        app.link.note(f"model: {info.ref}{_tell_kept(app.link.crew.defaults.keep_model(info)) if is_kept else ''}")


def _find_named(words: str, models: Sequence[ModelInfo]) -> list[ModelInfo]:
    """The models with this name, else those whose name contains it."""
    found = [info for info in models if words in (info.ref.lower(), info.id.lower())]
    return found or [info for info in models if words in f"{info.ref} {info.name}".lower()]


async def choose_thinking(app: "RetinueApp", words: str) -> None:
    """Choose a thinking level by name or from the levels that the model supports."""
    selection = app.link.crew.selection
    chosen: str | None = words
    is_kept = False
    if not words:
        rows = [PickerRow(level, level, mark="●" if level == selection.thinking else "") for level in selection.levels]
        key = app.keys.show("app.thinking.save")
        hint = f"enter: select{f' · {key}: save for all sessions' if key else ''} · esc: cancel"
        picker = ThinkingPicker("Thinking level", rows, chosen=selection.thinking, hint=hint)
        chosen, is_kept = await app.ask(picker), picker.is_kept
    level = next((each for each in THINKING_LEVELS if each == chosen), None)
    if chosen and level is None:
        raise UsageError(f"Unknown thinking level {quote(chosen)}. Choose one of: {', '.join(selection.levels)}")
    if level is not None:
        kept = _tell_kept(app.link.crew.defaults.keep_thinking(level)) if is_kept else ""
        app.link.note(f"thinking: {selection.think(level)}{kept}")


async def choose_scope(app: "RetinueApp", words: str) -> None:
    await app.ask(ScopePicker(app))


def _tell_kept(other: str) -> str:
    """Describe a choice saved for all sessions; `other` names a setting that overrides it here."""
    return ", saved for all sessions" if not other else f"; saved, but {clean_line(other, 200)} overrides it here"
