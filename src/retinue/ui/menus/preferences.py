"""`/agents` → Settings: those of subagents.json with who decides them; a change goes into the user's file."""

from typing import TYPE_CHECKING

from retinue.app import open_preferences
from retinue.ui.menus.base import Menu
from retinue.ui.screens.picker import Choice

if TYPE_CHECKING:
    from retinue.app.reports import Preference, Preferences

AT_ONCE = ("maxConcurrent", "widgetDisplayMode", "widgetMode", "fleetView", "commands.enabled")
"""What a session that goes on takes over."""
_RESET = "\0default"


def draw_preference(item: "Preference") -> Choice:
    """One row: the key, the value and what it is for."""
    return Choice(item.key, item.key, f"{item.shown} · {item.help}", "" if item.is_default else "●")


class PreferencesMenu(Menu):
    """Shows and changes settings."""

    async def run(self) -> None:
        """Until one goes back."""
        own = open_preferences(self.app.request)
        chosen: str | None = ""
        while chosen is not None:
            items = await self.attempt(own.list) or []
            about = f"Changes go to {self.app.shorten(own.path)}. ● is set, by you, this project or the environment."
            chosen = await self.choose(
                "Settings", [draw_preference(each) for each in items], chosen=chosen, about=about
            )
            item = next((each for each in items if each.key == chosen), None)
            if item is not None:
                await self._change(own, item)

    async def _change(self, own: "Preferences", item: "Preference") -> None:
        text = await (self._pick(item) if item.choices else self._write(item))
        if text is None:
            return
        key = item.key
        changed = await self.attempt(lambda: own.reset(key) if text == _RESET else own.change(key, text))
        if changed is None:
            return
        self.app.link.crew.retune()
        note = "" if key in AT_ONCE else "; it counts from the next session on"
        if changed.origin not in (own.path, "default"):
            note = f", as {changed.origin} says, which wins here"
        self.tell(f"{key} is {changed.shown}{note}")

    async def _pick(self, item: "Preference") -> str | None:
        rows = [
            Choice(shown, shown, mark="●" if value == item.value else "")
            for value, shown in ((value, item.show(value)) for value in item.choices)
        ]
        rows.append(Choice(_RESET, "back to the default", "takes it out of your file"))
        return await self.choose(item.key, rows, about=_explain(item), chosen=item.shown)

    async def _write(self, item: "Preference") -> str | None:
        rows = [
            Choice("write", "Another value", item.accepts),
            Choice(_RESET, "Back to the default", "takes it out of your file"),
        ]
        chosen = "write" if item.is_default else await self.choose(item.key, rows, about=_explain(item))
        if chosen != "write":
            return chosen
        shown = "" if item.shown == "(empty)" else item.shown
        return await self.ask(f"{item.key}: {item.help} Expected {item.accepts}.", shown)


def _explain(item: "Preference") -> str:
    origin = "the default" if item.is_default else f"says {item.origin}"
    return f"{item.help}\nNow {item.shown} ({origin}). Expected {item.accepts}."
