"""Loads pi's `keybindings.json`: the keys for each action. An invalid entry is dropped with a message.

Keys keep pi's spelling. Must not know what the actions do.
"""

import re
from typing import Any

from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.core.errors import quote
from retinue.settings.files import load_json
from retinue.settings.paths import Paths

_EDITOR = (
    *("cursorUp", "cursorDown", "historyPrevious", "historyNext", "cursorLeft", "cursorRight", "cursorWordLeft"),
    *("cursorWordRight", "cursorLineStart", "cursorLineEnd", "jumpForward", "jumpBackward", "pageUp", "pageDown"),
    *("deleteCharBackward", "deleteCharForward", "deleteWordBackward", "deleteWordForward", "deleteToLineStart"),
    *("deleteToLineEnd", "yank", "yankPop", "undo"),
)
_SCREEN = (
    *("pageUp", "pageDown", "halfPageUp", "halfPageDown", "lineUp", "lineDown", "previousPrompt", "nextPrompt"),
    *("search", "searchNext", "searchPrevious", "searchClose", "top", "bottom"),
)
_APP = (
    *(
        "interrupt",
        "clear",
        "exit",
        "suspend",
        "editor.external",
        "clipboard.pasteImage",
        "session.new",
        "session.tree",
    ),
    *("session.fork", "session.resume", "session.togglePath", "session.toggleSort", "session.toggleNamedFilter"),
    *("session.rename", "session.delete", "session.deleteNoninvasive", "model.select", "model.cycleForward"),
    *("model.cycleBackward", "models.save", "thinking.cycle", "thinking.save", "thinking.toggle", "tools.expand"),
    *("message.copy", "message.followUp", "message.dequeue", "tree.foldOrUp", "tree.unfoldOrDown", "tree.editLabel"),
    *("tree.toggleLabelTimestamp", "tree.filter.default", "tree.filter.noTools", "tree.filter.userOnly"),
    *("tree.filter.labeledOnly", "tree.filter.all", "tree.filter.cycleForward", "tree.filter.cycleBackward"),
    *("models.enableAll", "models.clearAll", "models.toggleProvider", "models.reorderUp", "models.reorderDown"),
)
_OWN = (
    *("app.resend", "app.menu.enter", "app.menu.back", "app.text.done", "app.fleet.open", "app.question.aside"),
    *("app.question.scrollUp", "app.question.scrollDown"),
    *(f"app.trust.{name}" for name in ("yes", "always", "no", "never")),
    *(f"app.view.{name}" for name in ("lineUp", "lineDown", "pageUp", "pageDown", "top", "bottom", "search")),
    *(f"app.view.{name}" for name in ("searchNext", "searchPrevious", "say", "stop", "close")),
    *(f"app.activity.{name}" for name in ("refresh", "clear", "count")),
    *(f"tui.editor.select{name}" for name in ("Left", "Right", "Up", "Down", "WordLeft", "WordRight")),
    *("tui.editor.selectLineStart", "tui.editor.selectLineEnd", "tui.editor.redo"),
)
OWN_ACTIONS = frozenset(_OWN)
"""Actions that pi does not have."""
ACTIONS = OWN_ACTIONS.union(
    (f"tui.editor.{name}" for name in _EDITOR),
    (f"tui.altScreen.{name}" for name in _SCREEN),
    (f"app.{name}" for name in _APP),
    (f"tui.input.{name}" for name in ("newLine", "submit", "tab", "copy")),
    (f"tui.select.{name}" for name in ("up", "down", "pageUp", "pageDown", "confirm", "cancel")),
)
_NAMED = (
    r"escape|esc|enter|return|tab|space|backspace|delete|insert|clear|home|end|pageup|pagedown|up|down|left|right"
    r"|f(?:[1-9]|1[0-2])"
)
_KEY = re.compile(
    rf"(?:(?:ctrl|shift|alt|super)\+)*(?:[a-z0-9]|[`\-=\[\]\\;',./!@#$%^&*()_+|~{{}}:<>?]|{_NAMED})", re.IGNORECASE
)


def is_key(text: str) -> bool:
    """Return whether a text is a key in pi's spelling."""
    return _KEY.fullmatch(text) is not None


def load_keybindings(paths: Paths) -> tuple[dict[str, tuple[str, ...]], list[Diagnostic]]:
    """Return the keys of each action in the file; an empty tuple removes an action's keys."""
    path = paths.agent_dir / "keybindings.json"
    raw, problems = load_json(path)
    found: dict[str, tuple[str, ...]] = {}
    for action, value in (raw or {}).items():
        if action == "$schema" or (value is None and action in ACTIONS):
            continue
        keys = _read_keys(value)
        if action not in ACTIONS:
            text = f"{path}: {quote(action)} is no action{suggest(action, ACTIONS)}; left out, /hotkeys lists the names"
        elif keys is None:
            text = f"{path}: {action}: found {show_value(value)}; expected a key such as ctrl+l, or a list of keys"
        else:
            found[action] = keys
            continue
        problems.append(Diagnostic(text, str(path), code="keybindings", field=action))
    return found, problems


def _read_keys(value: Any) -> tuple[str, ...] | None:
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not all(isinstance(key, str) and is_key(key) for key in keys):
        return None
    return tuple(dict.fromkeys(key.lower() for key in keys))
