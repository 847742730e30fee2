"""What the UI reads before it opens a session: the user's preferences, and whether trust must be asked. Blocking.

Imports the application only when it is called, because the screen is shown before that is loaded.
"""

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.ui.default_keys import DEFAULTS
from retinue.ui.formats import clean_line

if TYPE_CHECKING:
    from retinue.app import UserState


@dataclass(frozen=True, slots=True)
class KeptState:
    """The user's stored preferences and history."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    theme: str = ""
    """The setting `theme`, see `resolve_theme`."""
    start: str = ""
    """How the user chose to work without a key."""
    history: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    double_escape: str = "tree"
    """The command that pressing Escape twice runs while the agent is idle."""
    external_editor: str = ""
    """The editor command."""
    tree_filter: str = "default"
    """The initial filter of the session tree."""


def read_user_state() -> tuple["UserState", KeptState]:
    """Read the preferences. Raises RetinueError if there is no home directory."""
    from retinue.app import UserState

    user_state = UserState()
    keys, problems = user_state.load_keys(DEFAULTS)
    wishes, more = user_state.load_wishes()
    # pi's `no-tools` is our `noTools`.
    first, *others = wishes.tree_filter.split("-")
    tree_filter = first + "".join(word.capitalize() for word in others)
    history, theme = user_state.history.load(), user_state.theme
    if (user_state.paths.agent_dir / "themes" / f"{theme}.json").exists():
        theme = ""  # a theme file of pi, which only pi can show
    return user_state, KeptState(
        keys,
        theme,
        user_state.start,
        history,
        problems + more,
        wishes.double_escape,
        wishes.external_editor,
        tree_filter,
    )


def find_doubt() -> tuple[str, tuple[str, ...]] | None:
    """The project and its protected files if its trust is undecided, else None. Raises RetinueError."""
    from retinue.app import DecidedFolder

    project, trust = DecidedFolder().read(approve=None)
    return None if trust.trusted or not trust.notice else (str(project), trust.protected)


def save_decision(decision: bool) -> str:
    """Save the trust decision; returns a message for the user."""
    from retinue.app import DecidedFolder

    try:
        folder = DecidedFolder()
        folder.decide(decision)
    except RetinueError as error:
        return f"the decision applies now but could not be saved: {error}"
    return f"saved; to undo it: retinue trust {shlex.quote(clean_line(str(folder.path), 200))} --forget"
