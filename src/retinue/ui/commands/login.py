"""`/login`, and what the choices of the first start do."""

import asyncio
from typing import TYPE_CHECKING

from retinue.app import StoredKeys
from retinue.core.errors import KeyRefused, ModelError, RetinueError, UsageError
from retinue.ui.formats import clean_line
from retinue.ui.screens.overlay import hold_keys
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.widgets.welcome import RULES, Start, list_choices

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def log_in(app: "RetinueApp", words: str) -> None:
    """Ask for a key, check it and store it."""
    if len(words.split()) > 1:
        raise UsageError("write only the provider: /login NAME asks for the key and does not show it")
    await add_key(app, words)


def begin(app: "RetinueApp", start: Start) -> None:
    """Start in the way that the user has chosen, and remember it."""
    if start == "login":
        app.speech.take("/login")
        return
    selection = app.link.crew.selection
    local = selection.find_local() if start == "local" else None
    provider, name = (local.provider, local.id) if local is not None else ("offline", "rules")
    try:
        if selection.model.ref != f"{provider}/{name}":
            selection.select(provider, name)
    except RetinueError as error:
        app.link.note(str(error), "error")
        return
    app.choose_start(start)


async def add_key(app: "RetinueApp", name: str = "", model: str = "") -> bool:
    """Ask for a key of a provider, or of one that the user chooses; then use `model`. Returns whether it is stored."""
    keys = await asyncio.to_thread(StoredKeys)
    # Nothing typed between two dialogs may reach the editor: it could be the key.
    async with hold_keys(app):
        provider = await asyncio.to_thread(keys.find, name) if name else await _choose_provider(app, keys)
        if not provider:
            return False
        question = f"API key for {provider}; it is checked and stored in {app.shorten(keys.path)}"
        key = await app.ask(TextPrompt(question, is_secret=True))
        if not key or not key.strip():
            return False
        is_checked = await _check(app, keys, provider, key)
        if is_checked is None:
            app.link.note("the key is not stored")
            return False
        await asyncio.to_thread(keys.store, provider, key)
    is_first = bool(list_choices(app)) or app.link.crew.model.ref == RULES
    app.link.crew.renew_keys(provider)
    told = f"{provider}: the key {'works and is stored' if is_checked else 'is stored without a check'}"
    app.link.note(f"{told} in {app.shorten(keys.path)}{_switch(app, provider, model, is_first=is_first)}")
    return True


async def _choose_provider(app: "RetinueApp", keys: StoredKeys) -> str | None:
    found = await asyncio.to_thread(keys.list_providers)
    keyed = [f"{row.name} · key in {row.source}" if row.source else row.name for row in found]
    rows = [PickerRow(row.id, row.id, note, "●" * bool(row.source)) for row, note in zip(found, keyed, strict=True)]
    return await app.ask(Picker("Which provider is the key for?", rows))


async def _check(app: "RetinueApp", keys: StoredKeys, provider: str, key: str) -> bool | None:
    """Whether the provider accepts a key: False if it cannot tell, None if the key must not be stored."""
    app.notify(f"asking {clean_line(provider, 40)} whether it accepts the key", timeout=2, markup=False)
    try:
        await asyncio.to_thread(keys.check, provider, key, offline=app.request.offline)
    except KeyRefused as error:
        raise UsageError(f"{provider} does not accept this key; nothing is stored ({error})") from None
    except ModelError as error:
        rows = [PickerRow("no", "no", "store nothing"), PickerRow("yes", "yes", "store the key without a check")]
        about = f"The key cannot be checked: {error}"
        return False if await app.ask(Picker("Store the key anyway?", rows, about=about)) == "yes" else None
    finally:
        app.clear_notifications()
    return True


def _switch(app: "RetinueApp", provider: str, model: str, *, is_first: bool) -> str:
    """Use the model that was asked for, or the provider's default if there was no real model before."""
    selection = app.link.crew.selection
    named = app.request.model or app.request.provider
    default = selection.find_default(provider) if is_first and not named else None
    wanted = model or (default.ref if default is not None else "")
    if not wanted:
        return ""
    return f"; model: {selection.select(*wanted.split('/', 1)).ref}"
