"""`/tree`, `/fork`, `/clone`: continue from an earlier point, in this session or in a copy."""

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError
from retinue.ui.formats import clean_line, fold_skill
from retinue.ui.screens.main import MainScreen
from retinue.ui.screens.overlay import hold_keys
from retinue.ui.screens.panel import WaitScreen
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.screens.tree_picker import TreePicker
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_CHOICES = (
    PickerRow("none", "No summary", "the agent does not see the branch you leave"),
    PickerRow("plain", "Summarise", "the agent gets a summary of it"),
    PickerRow("asked", "Summarise with instructions", "you say what the summary should focus on"),
)
_COPIED = "This is a copy in a new session. The original session is in /resume."


async def show_tree(app: "RetinueApp", words: str) -> None:
    """Continue from any earlier entry; later entries stay in the session."""
    _check_said(app)
    async with hold_keys(app):
        lit = ""
        while chosen := await app.ask(TreePicker(app, app.kept.tree_filter, chosen=lit)):
            if app.link.crew.branching.is_here(chosen):
                app.link.note("you are already there")
                return
            if await _go(app, chosen):
                return
            lit = chosen


async def _go(app: "RetinueApp", entry_id: str) -> bool:
    """Go to the entry; False if the user wants to choose again."""
    branching = app.link.crew.branching
    asks = branching.asks and branching.leaves_words(entry_id)
    wish = await _ask_summary(app) if asks else (False, "")
    if wish is None:
        return False
    await _stop_agent(app)
    is_summarised, instructions = wish
    if is_summarised:
        going = branching.go(entry_id, summarise=True, instructions=instructions)
        said = await app.ask(WaitScreen("summarising the branch", going))
        if said is None:
            return False
    else:
        said = await branching.go(entry_id)
    app.link.reload()
    app.link.note("You continue from here. The other branch stays in this session: /tree")
    put_words(app, said)
    return True


async def _ask_summary(app: "RetinueApp") -> tuple[bool, str] | None:
    """Whether to summarise the branch that is left, and instructions for that; None to choose another entry."""
    hint = "enter: select · esc: back to the tree"
    while True:
        chosen = await app.ask(Picker("Summarise the branch you leave?", _CHOICES, hint=hint))
        if chosen != "asked":
            return None if chosen is None else (chosen == "plain", "")
        words = await app.ask(TextPrompt("What should the summary focus on?", is_long=True))
        if words is not None:
            return True, words.strip()


async def _stop_agent(app: "RetinueApp") -> None:
    """Stop the main agent, whose reply is no longer needed on this branch; subagents continue."""
    crew, main = app.link.crew, app.screen_stack[0]
    if crew.is_busy and isinstance(main, MainScreen):
        main.action_take_back()
        crew.abort(spares_runs=True)
        await crew.rest()


async def fork_session(app: "RetinueApp", words: str) -> None:
    """Switch to a copy that ends before a chosen user message, and put that message into the editor."""
    _check_said(app)
    said = app.link.crew.history.list_prompts()
    rows = [PickerRow(each.entry_id, clean_line(fold_skill(each.text), 200)) for each in said]
    chosen = await app.ask(Picker("Fork before", rows, chosen=said[-1].entry_id))
    if chosen:
        text = await app.link.crew.sessions.fork(chosen)
        app.link.reload()
        app.link.note(_COPIED)
        put_words(app, text)


async def clone_session(app: "RetinueApp", words: str) -> None:
    """Switch to a copy of this session."""
    await app.link.crew.sessions.clone()
    app.link.reload()
    app.link.note(_COPIED)


def _check_said(app: "RetinueApp") -> None:
    if not app.link.crew.history.list_prompts():
        raise UsageError("the conversation is empty")


def put_words(app: "RetinueApp", text: str) -> None:
    """Put text into the editor to be edited and sent again, unless the editor has content."""
    if text and not app.screen_stack[0].query_one(Editor).text.strip():
        app.put_words(fold_skill(text))
