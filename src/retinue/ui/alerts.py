"""Tells a person who looks elsewhere that work has ended or a question waits: a bell or a desktop notification."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from retinue.ui.driver import remove_unsafe
from retinue.ui.formats import clean_line

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

TITLE = "retinue"
MOST_CHARS = 120
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "rio", "kitty", "foot", "WarpTerminal")
"""Terminals that show `OSC 9`, by `TERM_PROGRAM` or part of `TERM`."""
_OSC_777 = ("VTE_VERSION", "KONSOLE_VERSION")
"""Variables of terminals that show `OSC 777` only."""


def alert(app: "RetinueApp", text: str) -> None:
    """Notify the person as the setting `notifications` says, unless the terminal reports that it has the focus."""
    wish = app.link.crew.crew_settings.notifications if app.link.is_open else "off"
    is_seen = app.app_focus and (wish == "auto" or app.has_focus_reports)
    driver = app._driver
    if wish != "off" and not is_seen and driver is not None and not app.is_headless:
        driver.write(render_alert(text, wish, {} if app.is_web else os.environ))


def render_alert(text: str, wish: str, environment: Mapping[str, str]) -> str:
    """The characters that ring the bell or show a notification in the terminal of an environment.

    `auto` rings the bell in a terminal that is not known to show notifications.
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    is_other = any(environment.get(name) for name in _OSC_777) or term.startswith("rxvt")
    is_known = is_other or program in _OSC_9 or any(name in term for name in _OSC_9)
    is_nested = bool(environment.get("TMUX"))
    # What tmux passes on is decided by its option `allow-passthrough`, which is off by default.
    if wish == "bell" or (wish == "auto" and (is_nested or not is_known)):
        return "\a"
    body = remove_unsafe(clean_line(text, MOST_CHARS))
    sequence = f"\x1b]777;notify;{TITLE};{body}\a" if is_other else f"\x1b]9;{TITLE}: {body}\a"
    escaped = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}\x1b\\" if is_nested else sequence
