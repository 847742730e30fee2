"""A binding whose keys the user may change: its id is the name of an action, which also has the default keys."""

from textual.binding import Binding

from retinue.ui.keys import DEFAULTS, NO_KEY


def bind(action: str, method: str, *, is_first: bool = False) -> Binding:
    """Let an action's keys call a method; with `is_first` before whatever has the focus sees them."""
    return Binding(DEFAULTS[action] or NO_KEY, method, "", show=False, priority=is_first, id=action)
