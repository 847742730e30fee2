"""`/rewind`: bring files and conversation back to before a prompt."""

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError
from retinue.ui.commands.branches import put_words
from retinue.ui.formats import clean_line, fold_skill
from retinue.ui.screens.overlay import hold_keys
from retinue.ui.screens.picker import Picker, PickerRow

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_WHAT = (
    PickerRow("both", "Files and conversation"),
    PickerRow("files", "Files", "the conversation stays as it is"),
    PickerRow("conversation", "Conversation", "the files stay as they are"),
)
_SHOWN = 20


async def rewind_session(app: "RetinueApp", words: str) -> None:
    """Rewind to before a chosen prompt; `undo` takes the last rewind back."""
    rewinds = app.link.crew.rewinds
    if words == "undo":
        title, paths, problems = await rewinds.undo()
        app.link.reload()
        _tell(app, f"Took back {title}", paths, problems)
        return
    if words:
        raise UsageError("/rewind takes no argument but undo; choose the prompt from the list")
    points = rewinds.list()
    if not points:
        raise UsageError("the conversation is empty")
    rows = [
        PickerRow(str(each.number), clean_line(fold_skill(each.text), 200), "" if each.checkpoint else "no checkpoint")
        for each in points
    ]
    async with hold_keys(app):
        number = await app.ask(Picker("Rewind to before", rows, chosen=rows[-1].key))
        what = await app.ask(Picker("What to bring back?", _WHAT)) if number else None
    if not number or not what:
        return
    point = points[int(number) - 1]
    done = await rewinds.go(point, files=what != "conversation", conversation=what != "files")
    app.link.reload()
    _tell(app, f"Rewound to before prompt {number}; /rewind undo takes this back", done.paths, done.notes)
    if what != "files":
        put_words(app, point.text)


def _tell(app: "RetinueApp", title: str, paths: list[str], notes: list[str]) -> None:
    more = [f"and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
    lines = [*(f"  {path}" for path in paths[:_SHOWN]), *more, *notes]
    count = f"{len(paths)} file{'' if len(paths) == 1 else 's'} restored" if paths else "no file was changed"
    app.link.note("\n".join((f"{title}: {count}", *lines)))
