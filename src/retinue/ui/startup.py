"""What the UI reads before it opens a session: the user's preferences, and whether trust must be asked. Blocking."""

import shlex
from dataclasses import dataclass, field

from retinue.app import UserState, open_folder
from retinue.core.errors import RetinueError
from retinue.ui.default_keys import DEFAULTS
from retinue.ui.formats import clean_line


@dataclass(slots=True)
class KeptState:
    """The user's stored preferences and history."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    theme: str = ""
    history: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    double_escape: str = "tree"
    external_editor: str = ""
    tree_filter: str = "default"


def read_habits() -> tuple[UserState, KeptState]:
    """Read the preferences. Raises RetinueError if there is no home directory."""
    habits = UserState()
    keys, problems = habits.load_keys(DEFAULTS)
    wishes, more = habits.load_wishes()
    history = habits.history.load()
    kept = KeptState(keys, habits.theme, history, problems + more)
    kept.double_escape, kept.external_editor = wishes.double_escape, wishes.external_editor
    kept.tree_filter = to_filter(wishes.tree_filter)
    return habits, kept


def to_filter(mode: str) -> str:
    """Convert pi's `treeFilterMode` to our filter name: `no-tools` becomes `noTools`."""
    first, *others = mode.split("-")
    return first + "".join(word.capitalize() for word in others)


def find_doubt() -> tuple[str, tuple[str, ...]] | None:
    """The project and its protected files if its trust is undecided, else None. Raises RetinueError."""
    project, trust = open_folder(None).read(approve=None)
    return None if trust.trusted or not trust.notice else (str(project), trust.protected)


def save_decision(decision: bool) -> str:
    """Save the trust decision; returns a message for the user."""
    try:
        folder = open_folder(None)
        folder.decide(decision)
    except RetinueError as error:
        return f"the decision counts now, but could not be saved: {error}"
    return f"remembered; to change it: retinue trust {shlex.quote(clean_line(str(folder.path), 200))} --forget"
