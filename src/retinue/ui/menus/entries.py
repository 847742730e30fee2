"""`/mcp` and `/hooks`: lists what is configured and approves entries of the project."""

from typing import TYPE_CHECKING

from retinue.ui.formats import clean_line
from retinue.ui.menus.base import HINT, Menu
from retinue.ui.screens.picker import PickerRow
from retinue.views.overview import ApprovalEntry, Kind, list_entries

if TYPE_CHECKING:
    from retinue.app import EntryApproval
    from retinue.ui.app import RetinueApp

_MARKS = {"ready": "✓", "disabled": "✕", "unapproved": "?", "changed": "!"}
_LEGEND = f"✓ ready  ? not approved  ! changed since approval  ✕ disabled · {HINT}"
_TITLES = {"mcp": "MCP servers", "hook": "Hooks"}


def draw_entry(entry: ApprovalEntry) -> PickerRow:
    owner = "project" if entry.is_projects else "your own"
    return PickerRow(entry.name, entry.name, f"{owner} · {entry.about}", _MARKS.get(entry.state, " "))


class EntriesMenu(Menu):
    """Shows servers or hooks; approves those of the project one by one."""

    def __init__(self, app: "RetinueApp", kind: Kind) -> None:
        super().__init__(app)
        self._kind: Kind = kind

    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            entries, problems = await self.attempt(lambda: list_entries(self.app.request, self._kind)) or ([], [])
            about = "\n".join(clean_line(text, 200) for text in problems[:3])
            if not entries:
                self.tell(about or f"no {_TITLES[self._kind]} are configured", is_bad=bool(about))
                return
            title = f"{_TITLES[self._kind]} ({len(entries)})"
            rows = [draw_entry(entry) for entry in entries]
            chosen = await self.choose(title, rows, about=about, chosen=chosen, hint=_LEGEND)
            found = next((entry for entry in entries if entry.name == chosen), None)
            if found is not None:
                await self._offer(found)

    async def _offer(self, entry: ApprovalEntry) -> None:
        rows, approval = [PickerRow("back", "Back")], None
        about = f"{entry.about}\n{self.app.shorten(entry.path)}"
        if entry.needs_consent:
            from retinue.app import EntryApproval

            approve = self.app.request.approve
            approval = await self.attempt(lambda: EntryApproval(entry.name, kind=self._kind, approve=approve))
            if approval is None:
                return
            line, lines = approval.describe()
            about = "\n".join((line, *lines))
            choice = ("yes", "Approve it as it is") if approval.needs_decision else ("no", "Revoke the approval")
            rows.append(PickerRow(*choice, "takes effect at the next start"))
        chosen = await self.choose(entry.name, rows, about=about)
        if chosen in ("yes", "no") and approval is not None:
            await self._decide(entry, approval, consent=chosen == "yes")

    async def _decide(self, entry: ApprovalEntry, approval: "EntryApproval", *, consent: bool) -> None:
        """Approve what was shown, whatever the file says by now."""

        def decide() -> str:
            approval.decide(consent)
            return "approved" if consent else "approval revoked"

        done = await self.attempt(decide)
        if done is not None:
            self.tell(f"{entry.name}: {done}; it takes effect at the next start")
