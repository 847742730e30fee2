"""`/settings`, and `/agents` → Settings: shows and changes subagents.json.

A change goes into the project's file, or into the user's if a key asks for it or the project may not set it.
"""

from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.ui.menus.base import HINT, Menu
from retinue.ui.screens.picker import PickerRow, TargetPicker

if TYPE_CHECKING:
    from retinue.views.overview import Preference

_RESET = "\0default"
_DEFAULT = PickerRow(_RESET, "Reset to default", "removes it from the file")


def draw_preference(item: "Preference") -> PickerRow:
    mark = "" if item.is_default else "●"
    return PickerRow(item.key, item.key, f"{item.shown} · {item.help}", mark, ends_group=item.ends_group)


class PreferencesMenu(Menu):
    _for_user = False
    """Whether changes go into the user's file although the project's could have them."""

    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            items = await self.attempt(self.app.link.crew.preferences.list) or []
            abouts = self._describe_targets()
            hint = f"{HINT} · {self.app.keys.show('tui.input.tab')}: save elsewhere" if len(abouts) > 1 else HINT
            rows = [draw_preference(each) for each in items]
            picker = TargetPicker("Settings", rows, abouts=abouts, hint=hint, chosen=chosen, is_other=self._for_user)
            chosen = await self.app.ask(picker)
            self._for_user = picker.is_other
            item = next((each for each in items if each.key == chosen), None)
            if item is not None:
                await self._change(item)

    def _describe_targets(self) -> list[str]:
        """Where changes are saved: in the project's file, and the user's instead; only the user's if it must be so."""
        own, shorten = self.app.link.crew.preferences, self.app.shorten
        legend = "●: set by you, the project or the environment."
        user = f"Changes are saved for all projects, in {shorten(own.user_path)}."
        if own.asks_first:
            return [f"You are asked where to save a change. {legend}", f"{user} {legend}"]
        if own.path == own.user_path:
            reason = "" if own.project_path == own.user_path else "The settings file of this folder is not trusted. "
            return [f"{reason}{user} {legend}"]
        return [f"Changes are saved for this project, in {shorten(own.path)}. {legend}", f"{user} {legend}"]

    async def _change(self, item: "Preference") -> None:
        text = await (self._pick(item) if item.choices else self._write(item))
        if text is None:
            return
        key, crew = item.key, self.app.link.crew
        for_user = self._for_user
        try:
            if text == _RESET:
                changed, problem = await crew.change_setting(key, None, for_user=for_user)
            else:
                accepts_file = not for_user and crew.preferences.needs_consent(key, text) and await self._choose_file()
                if accepts_file is None:
                    return
                changed, problem = await crew.change_setting(key, text, accepts_file=accepts_file, for_user=for_user)
        except RetinueError as error:
            self.tell(str(error), is_bad=True)
            return
        self.tell(f"{key} is {changed.shown}{self._explain(changed, problem)}", is_bad=bool(problem))

    def _explain(self, changed: "Preference", problem: str) -> str:
        """Where the value comes from and when it takes effect."""
        own = self.app.link.crew.preferences
        if changed.origin == "environment":
            return ", because an environment variable overrides it"
        note = "" if changed.acts_at_once else "; it takes effect in the next session"
        if problem:
            return f"{note} (session only; failed to persist): {problem}"
        if self._for_user and changed.origin == own.project_path:
            return f", because {self.app.shorten(changed.origin)} overrides your file"
        return (f", saved in {self.app.shorten(changed.origin)}" if changed.origin in own.files else "") + note

    async def _choose_file(self) -> bool | None:
        """Whether a folder that is not trusted gets its own settings file, which is then used; None to go back."""
        own = self.app.link.crew.preferences
        rows = [
            PickerRow("project", "For this folder", self.app.shorten(own.project_path)),
            PickerRow("user", "For all folders", self.app.shorten(own.user_path)),
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
