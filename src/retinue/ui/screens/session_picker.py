"""`/resume`: choose a session; sort, filter, rename and delete sessions with pi's keys."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from retinue.core.errors import RetinueError
from retinue.ui.default_keys import bind_all
from retinue.ui.formats import clean, describe_session
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from retinue.views.overview import delete_session, rename_session

Found = Mapping[str, Any]
_ORDERS: dict[str, Callable[[Found], Any]] = {
    "last used": lambda found: found["modified"],
    "created": lambda found: found["created"],
    "name": lambda found: (not found["name"], (found["name"] or found["firstMessage"] or "").lower()),
}


class SessionPicker(Picker):
    """The result is the path of a session, or None."""

    BINDINGS = bind_all(
        {
            "toggle_path": "app.session.togglePath",
            "toggle_sort": "app.session.toggleSort",
            "toggle_named": "app.session.toggleNamedFilter",
            "rename": "app.session.rename",
            "delete": "app.session.delete",
            "delete_quietly": "app.session.deleteNoninvasive",
        },
        is_first=True,
    )

    def __init__(self, found: Sequence[Found], now: str | None, *, with_folder: bool) -> None:
        """`now` is the path of the open session."""
        self._found = list(found)
        self._now = now
        self._with_folder = with_folder
        self._with_path = self._only_named = False
        self._order = next(iter(_ORDERS))
        self._doomed = ""
        """The path of the session that a second press deletes."""
        super().__init__("Resume a session", self._make_rows())

    def on_mount(self) -> None:
        self.tell(self._describe())

    def _describe(self) -> str:
        show = self.app.keys.show
        return (
            f"enter: open · {show('app.session.rename')}: rename · {show('app.session.delete')}: delete · "
            f"{show('app.session.toggleSort')}: sort (by {self._order}) · {show('app.session.toggleNamedFilter')}: "
            f"{'all' if self._only_named else 'only named'} · {show('app.session.togglePath')}: paths · esc: cancel"
        )

    def _make_rows(self) -> list[PickerRow]:
        chosen = [each for each in self._found if each["name"] or not self._only_named]
        rows = []
        for each in sorted(chosen, key=_ORDERS[self._order], reverse=self._order != "name"):
            label, note = describe_session(each, with_folder=self._with_folder, with_path=self._with_path)
            rows.append(PickerRow(each["path"], label, note, "●" if each["path"] == self._now else ""))
        return rows

    def _renew(self) -> None:
        self._doomed = ""
        self.put(self._make_rows(), hint=self._describe())

    def action_toggle_path(self) -> None:
        """Show or hide the session paths."""
        self._with_path = not self._with_path
        self._renew()

    def action_toggle_sort(self) -> None:
        """Switch to the next sort order."""
        orders = list(_ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._renew()

    def action_toggle_named(self) -> None:
        """Show only sessions with a name, or all."""
        self._only_named = not self._only_named
        self._renew()

    def action_rename(self) -> None:
        self.run_worker(self._rename(), exclusive=True)

    async def _rename(self) -> None:
        found = self._find_lit()
        if found is None:
            return
        name = await self.app.push_screen_wait(TextPrompt("Name of the session", value=found["name"] or ""))
        if not name or not name.strip():
            return
        if found["path"] == self._now:
            self.app.link.crew.history.rename(name.strip())
        elif not await self._try(lambda: rename_session(found["path"], name.strip())):
            return
        self._found = [{**each, "name": name.strip()} if each is found else each for each in self._found]
        self._renew()

    def action_delete(self) -> None:
        """Ask for confirmation on the first press, delete on the second."""
        found = self._find_lit()
        if found is None:
            return
        if found["path"] == self._now:
            self.tell("the open session cannot be deleted; open another session first")
        elif self._doomed != found["path"]:
            self._doomed = found["path"]
            key, name = self.app.keys.show("app.session.delete"), describe_session(found)[0]
            self.tell(f"{key} again: permanently delete “{name}” and the sessions of its subagents")
        else:
            self.run_worker(self._delete(found), exclusive=True)

    def action_delete_quietly(self) -> None:
        """Like `delete`, but does nothing while there is a search text."""
        if not self.needle:
            self.action_delete()

    async def _delete(self, found: Found) -> None:
        if await self._try(lambda: delete_session(found["path"])):
            self._found = [each for each in self._found if each is not found]
        self._renew()

    async def _try(self, work: Callable[[], None]) -> bool:
        try:
            await asyncio.to_thread(work)
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
            return False
        return True

    def _find_lit(self) -> Found | None:
        lit = self.lit
        return next((each for each in self._found if lit is not None and each["path"] == lit.key), None)
