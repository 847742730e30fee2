"""Hands on menus: what a list shows, and going into one of its rows."""

from textual.widgets import Input, OptionList, TextArea

from retinue.ui.screens.picker import Picker
from tests.ui.pilot_world import Stage


def read_rows(stage: Stage) -> list[str]:
    """The labels of the list on top; nothing when there is none."""
    screen = stage.app.screen
    return [row.label for row in screen.shown] if isinstance(screen, Picker) else []


def read_title(stage: Stage) -> str:
    screen = stage.app.screen
    return screen.title_text if isinstance(screen, Picker) else type(screen).__name__


async def enter(stage: Stage, *labels: str) -> None:
    """Go into rows, one after the other, by the arrow keys."""
    for label in labels:
        await stage.wait(lambda label=label: any(row.startswith(label) for row in read_rows(stage)))
        screen = stage.app.screen
        rows = read_rows(stage)
        place = rows.index(label) if label in rows else next(n for n, row in enumerate(rows) if row.startswith(label))
        screen.query_one(OptionList).highlighted = place
        await stage.press("right")
        await stage.wait(lambda screen=screen: stage.app.screen is not screen)


async def open_menu(stage: Stage, *labels: str) -> None:
    """`/agents`, then rows."""
    stage.app.speech.take("/agents")
    await enter(stage, *labels)


async def answer(stage: Stage, text: str) -> None:
    """Write into the line on top."""
    await stage.wait(lambda: read_title(stage) == "TextPrompt")
    screen = stage.app.screen
    screen.query_one(Input).value = text
    await stage.press("enter")
    await stage.wait(lambda: stage.app.screen is not screen)


async def fill_page(stage: Stage, text: str) -> None:
    """Replace what the page on top holds, and be done with it."""
    await stage.wait(lambda: read_title(stage) == "TextPage")
    stage.app.screen.query_one(TextArea).text = text
    await stage.press("ctrl+s")
