"""What is found out before a crew is opened: the user's habits, and whether the folder must be asked about. Blocks."""

import shlex
from dataclasses import dataclass, field

from retinue.app import Habits, open_folder
from retinue.core.errors import RetinueError
from retinue.ui.formats import clean_line


@dataclass(slots=True)
class KeptState:
    """What was kept of the user."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    theme: str = ""
    history: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    double_escape: str = "tree"
    external_editor: str = ""
    tree_filter: str = "default"


def read_habits() -> tuple[Habits, KeptState]:
    """The habits, and all that is in them. Raises RetinueError when there is no home."""
    habits = Habits()
    keys, problems = habits.load_keys()
    wishes, more = habits.load_wishes()
    history = habits.history.load()
    kept = KeptState(keys, habits.theme, history, problems + more)
    kept.double_escape, kept.external_editor = wishes.double_escape, wishes.external_editor
    kept.tree_filter = to_filter(wishes.tree_filter)
    return habits, kept


def to_filter(mode: str) -> str:
    """A `treeFilterMode` of pi's as the tree names it: `no-tools` is `noTools`."""
    first, *others = mode.split("-")
    return first + "".join(word.capitalize() for word in others)


def find_doubt() -> tuple[str, tuple[str, ...]] | None:
    """The project and what it brings along, when nobody has decided about it yet. Raises RetinueError."""
    project, trust = open_folder(None).read(approve=None)
    return None if trust.trusted or not trust.notice else (str(project), trust.protected)


def save_decision(decision: bool) -> str:
    """Remember a decision about the folder; returns what to tell about that."""
    try:
        folder = open_folder(None)
        folder.decide(decision)
    except RetinueError as error:
        return f"the decision counts now, but could not be saved: {error}"
    return f"remembered; to change it: retinue trust {shlex.quote(clean_line(str(folder.path), 200))} --forget"
