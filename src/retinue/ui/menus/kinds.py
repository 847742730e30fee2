"""`/agents` → Agent types: shows agents with their tools, and changes their files."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from retinue.app import open_roster
from retinue.core.errors import RetinueError
from retinue.ui.editor_program import edit_file
from retinue.ui.formats import clean_line
from retinue.ui.menus.base import HINT, Menu
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.picker import PickerRow
from retinue.ui.screens.prompt import TextPage
from retinue.views.agent import render_details

if TYPE_CHECKING:
    from retinue.app import Roster

LEGEND = f"• project  ◦ global  ✕ disabled · {HINT}"
_MARKS = {"project": "•", "user": "◦"}
_DEEDS = {
    "details": PickerRow("details", "Details", "fields, tools and problems of its file"),
    "eject": PickerRow("eject", "Eject", "copy it to a file that you can edit"),
    "enable": PickerRow("enable", "Enable", "allow it to run again"),
    "edit": PickerRow("edit", "Edit", "edit its file"),
    "disable": PickerRow("disable", "Disable", "do not allow it to run"),
    "reset": PickerRow("reset", "Reset to default", "delete the file and use the built-in agent again"),
    "delete": PickerRow("delete", "Delete", "delete its file"),
}
_DONE = {"eject": "copied to", "enable": "enabled:", "disable": "disabled:", "reset": "deleted", "delete": "deleted"}


def list_deeds(kind: str, *, is_enabled: bool) -> list[str]:
    """The actions for an agent: `kind` is builtin, overridden or custom."""
    if kind == "builtin":
        return ["eject", "disable"] if is_enabled else []
    reset = ["reset"] if kind == "overridden" else []
    if is_enabled:
        return ["edit", "disable", *reset, "delete"]
    return ["enable", "edit", *reset, "delete"]


def draw_kind(row: dict[str, Any], *variants: dict[str, Any]) -> PickerRow:
    mark = _MARKS.get(row["source"], "") if row["enabled"] else "✕"
    facts = [f"also {', '.join(each['name'] for each in variants)}"] if variants else []
    facts.append(clean_line(row["description"] or "(no description)", 90))
    facts += ["read-only"] if row["readonly"] else []
    facts += [row["model"]] if row["model"] else []
    return PickerRow(row["name"], row["name"], " · ".join(facts), mark)


def draw_variant(row: dict[str, Any]) -> PickerRow:
    about = f"on {', '.join(row['surfaces'])} · tools: {', '.join(row['tools']) or 'none'}"
    return PickerRow(row["name"], row["name"], about, "" if row["enabled"] else "✕")


def describe_kind(about: dict[str, Any]) -> str:
    """Describe an agent above the list of actions."""
    rights = "read-only" if about["readonly"] else "read/write"
    surfaces = ", ".join(each["surface"] for each in about["surfaces"] if each["path"] == about["path"])
    path = [about["path"]] if about["source"] != "builtin" else []
    lines = [
        clean_line(about["description"] or "(no description)", 300),
        " · ".join([about["source"], about["dialect"], *path, f"on {surfaces}"]),
        f"{rights} · model {about['model'] or 'of the caller'} · thinking {about['thinking'] or 'of the caller'}",
        f"tools: {', '.join(about['tools']) or 'none'}",
    ]
    if not about["enabled"]:
        lines.append("disabled: it cannot run")
    lines += [clean_line(f"{item['severity']}: {item['message']}", 300) for item in about["diagnostics"][:3]]
    return "\n".join(lines)


class KindsMenu(Menu):
    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            roster = self.open_roster()
            found = await self.attempt(roster.list_rows) or {"agents": [], "diagnostics": []}
            groups = roster.group_rows(found["agents"])
            broken = [item for item in found["diagnostics"] if item["severity"] == "error"]
            about = "\n".join(clean_line(item["message"], 200) for item in broken[:3])
            rows, title = [draw_kind(*group) for group in groups], f"Agent types ({len(groups)})"
            chosen = await self.choose(title, rows, hint=LEGEND, chosen=chosen, about=about)
            if chosen is not None:
                variants = next(rest for first, *rest in groups if first["name"] == chosen)
                await self._offer(roster, chosen, variants)

    def open_roster(self) -> "Roster":
        """Read the agents from their files."""
        return open_roster(self.app.request, lambda text: None, self.app.link.crew.has_model)

    async def _offer(self, roster: "Roster", name: str, variants: Sequence[dict[str, Any]] = ()) -> None:
        """Show the actions and variants until the user goes back or the agent has changed."""
        while True:
            details = await self.attempt(lambda: roster.describe(name))
            if details is None:
                return
            about, kind = details.to_json(), roster.find_kind(details.definition)
            is_found = roster.find(name) == details.definition  # else only `dispatch_agent` finds it by this name
            deeds = ["details", *(list_deeds(kind, is_enabled=about["enabled"]) if is_found else ())]
            rows = [_DEEDS[deed] for deed in deeds] + [draw_variant(row) for row in variants]
            deed = await self.choose(about["name"], rows, about=describe_kind(about))
            if deed is None:
                return
            if deed == "details":
                await self.app.ask(Panel(about["name"], render_details(about)))
            elif deed not in _DEEDS:
                await self._offer(roster, deed)
            elif await self._do(roster, deed, about):
                return

    async def _do(self, roster: "Roster", deed: str, about: dict[str, Any]) -> bool:
        """Run an action on an agent; True if it was done."""
        name, path = about["name"], about["path"]
        if deed == "edit":
            return await self.edit(roster, name, path)
        if deed in ("reset", "delete"):
            question = f"{'Reset' if deed == 'reset' else 'Delete'} {name}?"
            if not await self.confirm(question, f"Yes, delete {self.app.shorten(path)}"):
                return False
        in_project = False
        if deed == "eject" or (deed == "disable" and about["source"] == "builtin"):
            place = await choose_place(self, roster)
            if place is None:
                return False
            in_project = place == "project"
        deeds = {
            "eject": lambda: roster.files.eject(name, in_project=in_project),
            "enable": lambda: roster.files.enable(name),
            "disable": lambda: roster.files.disable(name, in_project=in_project),
            "reset": lambda: roster.files.delete(name),
            "delete": lambda: roster.files.delete(name),
        }
        changed = await self.attempt(deeds[deed])
        if changed is None:
            return False
        self.tell(f"{_DONE[deed]} {changed}")
        if deed in ("eject", "disable"):
            await accept_file(self, roster, changed)
        return True

    async def edit(self, roster: "Roster", name: str, path: str) -> bool:
        """Edit the agent's file in the user's editor, or in a page of ours if none is set."""
        was_accepted = roster.files.is_accepted(path)
        try:
            if not await edit_file(self.app, path):
                return await self._rewrite(roster, name, path)
            if was_accepted:
                roster.files.accept(path)
        except RetinueError as error:
            self.tell(str(error), is_bad=True)
            return False
        problems = [item for item in roster.read().diagnostics if item.path == path]
        if problems:
            self.tell(problems[0].message, is_bad=problems[0].severity == "error")
        return True

    async def _rewrite(self, roster: "Roster", name: str, path: str) -> bool:
        text = await self.attempt(lambda: roster.files.read_text(name))
        while text is not None:
            text = await self.app.ask(TextPage(path, text))
            remarks = None if text is None else await self.attempt(partial(roster.files.rewrite, name, text))
            if remarks is not None:
                self.tell(remarks[0] if remarks else f"saved {self.app.shorten(path)}")
                return True
        return False


async def accept_file(menu: Menu, roster: "Roster", path: str) -> None:
    """Ask whether to use a new file in a folder that is not trusted."""
    if not roster.files.needs_consent(path):
        return
    if await menu.confirm("This folder is not trusted. Use this file anyway?", "Yes, use it as it is"):
        await menu.attempt(lambda: roster.files.accept(path))
    else:
        menu.tell("not used until you accept it with retinue trust --file")


async def choose_place(menu: Menu, roster: "Roster") -> str | None:
    """`project` or `user`; None to go back."""
    shorten = menu.app.shorten
    rows = [
        PickerRow("project", "This project", shorten(roster.paths.project / ".pi" / "agents")),
        PickerRow("user", "For all projects", shorten(roster.paths.agent_dir / "agents")),
    ]
    return await menu.choose("Where?", rows if roster.trust.trusted else rows[::-1])
