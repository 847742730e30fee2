"""`/agents` → Settings: shows and changes subagents.json.

A change goes into the project's file, or into the user's if the project may not set it.
"""

from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.ui.menus.base import Menu
from retinue.ui.screens.picker import PickerRow

if TYPE_CHECKING:
    from retinue.views.overview import Preference

_RESET = "\0default"
_DEFAULT = PickerRow(_RESET, "Reset to default", "removes it from the file")


def draw_preference(item: "Preference") -> PickerRow:
    return PickerRow(item.key, item.key, f"{item.shown} · {item.help}", "" if item.is_default else "●")


class PreferencesMenu(Menu):
    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            own = self.app.link.crew.preferences
            items = await self.attempt(own.list) or []
            about = f"Changes are saved in {self.app.shorten(own.path)}. ●: set by you, the project or the environment."
            chosen = await self.choose(
                "Settings", [draw_preference(each) for each in items], chosen=chosen, about=about
            )
            item = next((each for each in items if each.key == chosen), None)
            if item is not None:
                await self._change(item)

    async def _change(self, item: "Preference") -> None:
        text = await (self._pick(item) if item.choices else self._write(item))
        if text is None:
            return
        key, crew = item.key, self.app.link.crew
        try:
            if text == _RESET:
                changed, problem = await crew.change_setting(key, None)
            else:
                accepts_file = crew.preferences.needs_consent(key, text) and await self._choose_file()
                if accepts_file is None:
                    return
                changed, problem = await crew.change_setting(key, text, accepts_file=accepts_file)
        except RetinueError as error:
            self.tell(str(error), is_bad=True)
            return
        note = "" if changed.acts_at_once else "; it takes effect in the next session"
        if changed.origin not in (crew.preferences.path, "default", "flag", "environment"):
            note = f" in {self.app.shorten(changed.origin)}{note}"
        if changed.origin == "environment":
            note = ", because an environment variable overrides it"
        if problem:
            note += f" (session only; failed to persist): {problem}"
        self.tell(f"{key} is {changed.shown}{note}", is_bad=bool(problem))

    async def _choose_file(self) -> bool | None:
        """Whether a folder that is not trusted gets its own settings file, which is then used; None to go back."""
        own = self.app.link.crew.preferences
        rows = [
            PickerRow("project", "For this folder", self.app.shorten(own.project_path)),
            PickerRow("user", "For all folders", self.app.shorten(own.path)),
        ]
        about = "This folder is not trusted. Only the settings file that you create here will be used."
        chosen = await self.choose("Where should the setting be saved?", rows, about=about)
        return None if chosen is None else chosen == "project"

    async def _pick(self, item: "Preference") -> str | None:
        rows = [
            PickerRow(shown, shown, mark="●" if value == item.value else "")
            for value, shown in ((value, item.show(value)) for value in item.choices)
        ]
        rows.append(_DEFAULT)
        return await self.choose(item.key, rows, about=_explain(item), chosen=item.shown)

    async def _write(self, item: "Preference") -> str | None:
        rows = [PickerRow("write", "Another value", item.accepts), _DEFAULT]
        chosen = "write" if item.is_default else await self.choose(item.key, rows, about=_explain(item))
        if chosen != "write":
            return chosen
        shown = "" if item.shown == "(empty)" else item.shown
        return await self.ask(f"{item.key}: {item.help} Accepted: {item.accepts}.", shown)


def _explain(item: "Preference") -> str:
    origin = "the default" if item.is_default else f"from {item.origin}"
    return f"{item.help}\nCurrent value: {item.shown} ({origin}). Accepted: {item.accepts}."
