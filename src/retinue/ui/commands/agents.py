"""`/agents`: menus for runs, agent types, scheduled jobs, new agents and settings."""

from typing import TYPE_CHECKING

from retinue.ui.menus.base import Menu
from retinue.ui.menus.creation import CreationMenu
from retinue.ui.menus.kinds import KindsMenu
from retinue.ui.menus.preferences import PreferencesMenu
from retinue.ui.menus.runs import JobsMenu, RunsMenu, title_runs
from retinue.ui.screens.overlay import hold_keys
from retinue.ui.screens.picker import PickerRow

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

MENUS: dict[str, type[Menu]] = {
    "runs": RunsMenu,
    "types": KindsMenu,
    "jobs": JobsMenu,
    "create": CreationMenu,
    "settings": PreferencesMenu,
}


async def list_rows(app: "RetinueApp") -> list[PickerRow]:
    """The menu rows that are available now."""
    menu = KindsMenu(app)
    crew = app.link.crew
    rows = []
    if runs := crew.session_runs.runs:
        rows.append(PickerRow("runs", title_runs(runs)))
    found = await menu.attempt(lambda: menu.open_roster().read().group())
    rows.append(PickerRow("types", f"Agent types ({len(found or ())})"))
    if crew.crew_settings.scheduling_enabled:
        jobs = await menu.attempt(crew.list_jobs)
        rows.append(PickerRow("jobs", f"Scheduled jobs ({len(jobs[0]) if jobs else 0})"))
    return [*rows, PickerRow("create", "Create new agent"), PickerRow("settings", "Settings")]


async def open_agents(app: "RetinueApp", words: str) -> None:
    """Show the menu until the user leaves it."""
    chosen: str | None = ""
    async with hold_keys(app):
        while chosen is not None:
            chosen = await Menu(app).choose("Agents", await list_rows(app), chosen=chosen)
            if chosen:
                await MENUS[chosen](app).run()


async def open_settings(app: "RetinueApp", words: str) -> None:
    async with hold_keys(app):
        await PreferencesMenu(app).run()
