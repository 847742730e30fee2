"""What Escape and Ctrl+C do on the main screen: stop the agent, then its runs, go back, exit."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retinue.core.figures import count_noun
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.ui.screens.main import MainScreen


def describe_scope(key: str, count: int) -> str:
    """`esc: stop the agent · esc esc: also 3 runs`."""
    more = f" · {key} {key}: also {count_noun(count, 'run')}" if count else ""
    return f"{key}: stop the agent{more}"


@dataclass(slots=True)
class DoublePress:
    """Detects a key that is pressed twice within a time."""

    within_s: float
    _last_s: float = float("-inf")

    def press(self, now_s: float) -> bool:
        """Record a press; returns whether it is the second one."""
        is_second = now_s - self._last_s < self.within_s
        self._last_s = float("-inf") if is_second else now_s
        return is_second

    def arm(self, now_s: float) -> None:
        """Count something else as the first press."""
        self._last_s = now_s


AGAIN_S = 2.0
"""Seconds within which a second press counts after a hint was shown."""
DOUBLE_S = 0.6
"""Seconds within which a double press counts where no hint was shown."""


class StopKeys:
    """Counts key presses and decides what the next one does."""

    def __init__(self, screen: "MainScreen") -> None:
        self._screen = screen
        self._link = screen.app.link
        self._leaving = DoublePress(AGAIN_S)
        self._ending_runs = DoublePress(AGAIN_S)
        self._going_back = DoublePress(DOUBLE_S)

    def describe(self) -> str:
        """A hint about what can be stopped while the agent is idle; empty if nothing can."""
        runs, key = self._link.working, self._screen.app.keys.show("app.interrupt")
        if not runs or self._link.state.is_busy:
            return ""
        return f"{count_noun(runs, 'run')} · {key} {key}: stop {'it' if runs == 1 else 'them'}"

    def stop(self) -> None:
        """Stop the agent; on a second press its runs. If nothing works, a double press runs `doubleEscapeAction`."""
        if not self._link.is_open:
            return
        app, now_s, runs = self._screen.app, time.monotonic(), self._link.working
        command = app.kept.double_escape
        if self._link.crew.shell.abort():
            return  # a command of the user
        if self._link.state.is_busy:
            self._interrupt()
        elif runs:
            if self._ending_runs.press(now_s):
                self._link.crew.abort()
                self._screen.tell(f"stopping {count_noun(runs, 'run')}")
            else:
                self._screen.tell(f"{app.keys.show('app.interrupt')} again: stop {count_noun(runs, 'run')}")
        elif not self._screen.query_one(Editor).text and command != "none" and self._going_back.press(now_s):
            self._screen.action_call(f"/{command}")

    def clear_or_leave(self) -> None:
        """Copy the selection, clear the editor or stop the agent; if there is nothing to do, a second press exits."""
        app, editor = self._screen.app, self._screen.query_one(Editor)
        if self._copy_selected():
            return
        if editor.text:
            editor.clear_all()
        elif self._link.is_open and self._link.crew.shell.abort():
            return
        elif self._link.is_open and self._link.state.is_busy:
            self._interrupt()
        elif self._leaving.press(time.monotonic()):
            app.leave()
        else:
            self._screen.tell(f"{app.keys.show('app.clear')} again: exit")

    def _interrupt(self) -> None:
        """Stop the agent; its runs continue, and a second press stops those."""
        self._screen.action_take_back()
        self._link.crew.abort(spares_runs=True)
        if runs := self._link.working:
            self._ending_runs.arm(time.monotonic())
            key = self._screen.app.keys.show("app.interrupt")
            verb, noun = ("continues", "it") if runs == 1 else ("continue", "them")
            self._screen.tell(f"{count_noun(runs, 'run')} {verb}; {key} again: stop {noun}")

    def _copy_selected(self) -> bool:
        """Copy the selection if one key both clears and copies; returns whether there was a selection."""
        screen, editor = self._screen, self._screen.query_one(Editor)
        keys = screen.app.keys
        if not set(keys.find("app.clear")) & set(keys.find("tui.input.copy")):
            return False
        text = editor.selected_text or screen.get_selected_text()
        if text:
            screen.app.copy_to_clipboard(text)
            screen.clear_selection()
            editor.move_cursor(editor.cursor_location)
            screen.tell("copied")
        return bool(text)
