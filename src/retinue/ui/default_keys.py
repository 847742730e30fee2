"""Key bindings: the default keys of each action, and changes from pi's `keybindings.json`. Must not know widgets.

Actions have pi's names, so that one file serves both programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding

NO_KEY = "no-key"
"""The binding of an action that the user has switched off; no terminal sends this key."""
KEPT = frozenset({"tui.select.cancel"})
"""Actions that always have a key: without this one, a user could not leave a list."""

# By section of `/hotkeys`: action, default keys in Textual's spelling, and help.
_TABLE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Talking": (
        ("tui.input.submit", "enter", "send; while the agent works: say it before its next reply"),
        ("app.message.followUp", "alt+enter", "say it when the agent would stop"),
        ("app.message.dequeue", "alt+up", "take back what waits to be said"),
        ("app.interrupt", "escape", "stop the agent; again: all runs too; twice at rest: go back in the conversation"),
        ("app.resend", "f9", "stop the agent and say at once what waits"),
        ("app.clear", "ctrl+c", "empty the editor, or stop the agent; twice at rest: leave"),
        ("app.exit", "ctrl+d", "leave, when nothing is written"),
        ("app.suspend", "ctrl+z", "put the program into the background"),
    ),
    "Choosing": (
        ("app.model.select", "ctrl+l", "choose a model"),
        ("app.model.cycleForward", "ctrl+p", "next model"),
        ("app.model.cycleBackward", "ctrl+shift+p", "previous model"),
        ("app.models.save", "ctrl+s", "in lists of models: take one for all sessions, or keep the choice"),
        ("app.models.enableAll", "ctrl+a", "in /scoped-models: take all in, or all that are found"),
        ("app.models.clearAll", "ctrl+x", "in /scoped-models: take all out, or all that are found"),
        ("app.models.toggleProvider", "ctrl+p", "in /scoped-models: take a provider's models in or out"),
        ("app.models.reorderUp", "alt+up", "in /scoped-models: let a model come earlier"),
        ("app.models.reorderDown", "alt+down", "in /scoped-models: let a model come later"),
        ("app.thinking.cycle", "shift+tab", "next thinking level"),
        ("app.thinking.save", "ctrl+s", "in the list of thinking levels: take one for all sessions"),
        ("app.thinking.toggle", "ctrl+t", "show thinking, or fold it"),
        ("app.tools.expand", "ctrl+o", "show everything in full, or folded"),
        ("app.message.copy", "ctrl+x", "copy the last reply"),
        ("app.session.new", "", "new session"),
        ("app.session.tree", "", "go back in the conversation"),
        ("app.session.fork", "", "go back in a copy of the session"),
        ("app.session.resume", "", "another session"),
    ),
    "Reading": (
        ("tui.altScreen.pageUp", "pageup", "a page up"),
        ("tui.altScreen.pageDown", "pagedown", "a page down"),
        ("tui.altScreen.halfPageUp", "", "half a page up"),
        ("tui.altScreen.halfPageDown", "", "half a page down"),
        ("tui.altScreen.lineUp", "", "a line up"),
        ("tui.altScreen.lineDown", "", "a line down"),
        ("tui.altScreen.previousPrompt", "ctrl+shift+up,ctrl+up", "to what you said before"),
        ("tui.altScreen.nextPrompt", "ctrl+shift+down,ctrl+down", "to what you said after"),
        ("tui.altScreen.top", "ctrl+home", "to the beginning"),
        ("tui.altScreen.bottom", "ctrl+end", "to the end, which is followed again"),
        ("tui.altScreen.search", "ctrl+shift+f,f3", "search the conversation"),
        ("tui.altScreen.searchNext", "enter,ctrl+g", "while searching: the next place"),
        ("tui.altScreen.searchPrevious", "shift+enter,ctrl+shift+g", "while searching: the place before"),
        ("tui.altScreen.searchClose", "escape", "while searching: done"),
    ),
    "Writing": (
        ("tui.input.newLine", "shift+enter,ctrl+j", "new line"),
        ("tui.input.tab", "tab", "complete"),
        ("app.editor.external", "ctrl+g", "write in your own editor"),
        ("app.clipboard.pasteImage", "ctrl+v", "paste an image or text of the clipboard"),
        ("tui.input.copy", "ctrl+c", "copy what is selected"),
        ("tui.editor.cursorUp", "up", "line up; at the top: what was written before"),
        ("tui.editor.cursorDown", "down", "line down; at the end: what was written after"),
        ("tui.editor.historyPrevious", "", "what was written before"),
        ("tui.editor.historyNext", "", "what was written after"),
        ("tui.editor.cursorLeft", "left,ctrl+b", "left"),
        ("tui.editor.cursorRight", "right,ctrl+f", "right"),
        ("tui.editor.cursorWordLeft", "alt+left,ctrl+left,alt+b", "a word left"),
        ("tui.editor.cursorWordRight", "alt+right,ctrl+right,alt+f", "a word right"),
        ("tui.editor.cursorLineStart", "home,ctrl+a", "to the start of the line"),
        ("tui.editor.cursorLineEnd", "end,ctrl+e", "to the end of the line"),
        ("tui.editor.jumpForward", "ctrl+right_square_bracket", "forward to the character typed next"),
        ("tui.editor.jumpBackward", "alt+ctrl+right_square_bracket", "back to the character typed next"),
        ("tui.editor.pageUp", "ctrl+pageup", "a page up in the editor"),
        ("tui.editor.pageDown", "ctrl+pagedown", "a page down in the editor"),
        ("tui.editor.deleteCharBackward", "backspace", "delete before the cursor"),
        ("tui.editor.deleteCharForward", "delete", "delete after the cursor"),
        ("tui.editor.deleteWordBackward", "ctrl+w,alt+backspace,ctrl+backspace", "delete the word before"),
        ("tui.editor.deleteWordForward", "alt+d,alt+delete", "delete the word after"),
        ("tui.editor.deleteToLineStart", "ctrl+u", "delete to the start of the line"),
        ("tui.editor.deleteToLineEnd", "ctrl+k", "delete to the end of the line"),
        ("tui.editor.yank", "ctrl+y", "put back what was deleted"),
        ("tui.editor.yankPop", "alt+y", "put back what was deleted before that"),
        ("tui.editor.undo", "ctrl+underscore,ctrl+minus", "undo"),
        ("tui.editor.redo", "ctrl+shift+z", "do it again"),
        ("tui.editor.selectLeft", "shift+left", "select to the left"),
        ("tui.editor.selectRight", "shift+right", "select to the right"),
        ("tui.editor.selectUp", "shift+up", "select a line up"),
        ("tui.editor.selectDown", "shift+down", "select a line down"),
        ("tui.editor.selectWordLeft", "ctrl+shift+left", "select a word to the left"),
        ("tui.editor.selectWordRight", "ctrl+shift+right", "select a word to the right"),
        ("tui.editor.selectLineStart", "shift+home", "select to the start of the line"),
        ("tui.editor.selectLineEnd", "shift+end", "select to the end of the line"),
    ),
    "Lists and questions": (
        ("tui.select.up", "up", "one up"),
        ("tui.select.down", "down", "one down"),
        ("tui.select.pageUp", "pageup", "a page up"),
        ("tui.select.pageDown", "pagedown", "a page down"),
        ("tui.select.confirm", "enter", "take it"),
        ("tui.select.cancel", "escape,ctrl+c", "leave"),
        ("app.menu.enter", "right", "into a row of a list"),
        ("app.menu.back", "left", "back from a list in which nothing is searched"),
        ("app.text.done", "ctrl+s", "keep a text that was asked for"),
        ("app.fleet.open", "down,left", "in an empty editor: choose an agent below"),
        ("app.question.aside", "tab", "write first, or answer the question"),
        ("app.question.scrollUp", "shift+up", "scroll what is asked up"),
        ("app.question.scrollDown", "shift+down", "scroll what is asked down"),
        ("app.trust.yes", "y", "use this folder's configuration this time"),
        ("app.trust.always", "a", "always use it"),
        ("app.trust.no", "n", "do not use it this time"),
        ("app.trust.never", "v", "never use it"),
    ),
    "Sessions": (
        ("app.session.togglePath", "ctrl+p", "in the list of sessions: show where each is kept"),
        ("app.session.toggleSort", "ctrl+s", "in the list of sessions: sort it otherwise"),
        ("app.session.toggleNamedFilter", "ctrl+n", "in the list of sessions: only those with a name"),
        ("app.session.rename", "ctrl+r", "in the list of sessions: give one a name"),
        ("app.session.delete", "ctrl+d", "in the list of sessions, twice: delete one"),
        ("app.session.deleteNoninvasive", "ctrl+backspace", "the same, while nothing is searched"),
        ("app.tree.foldOrUp", "ctrl+left,alt+left", "in the tree: fold a branch, or go to where it begins"),
        ("app.tree.unfoldOrDown", "ctrl+right,alt+right", "in the tree: unfold it, or go to the next one"),
        ("app.tree.editLabel", "L", "in the tree: mark an entry with some words"),
        ("app.tree.toggleLabelTimestamp", "T", "in the tree: show when it was marked"),
        ("app.tree.filter.default", "ctrl+d", "in the tree: what was said and done"),
        ("app.tree.filter.noTools", "ctrl+t", "in the tree: without results of tools"),
        ("app.tree.filter.userOnly", "ctrl+u", "in the tree: only what you said"),
        ("app.tree.filter.labeledOnly", "ctrl+l", "in the tree: only what is marked"),
        ("app.tree.filter.all", "ctrl+a", "in the tree: everything"),
        ("app.tree.filter.cycleForward", "ctrl+o", "in the tree: show otherwise"),
        ("app.tree.filter.cycleBackward", "ctrl+shift+o", "in the tree: show as before that"),
    ),
    "Agents and reports": (
        ("app.view.lineUp", "k", "a line up"),
        ("app.view.lineDown", "j", "a line down"),
        ("app.view.pageUp", "shift+up", "a page up"),
        ("app.view.pageDown", "shift+down,space", "a page down"),
        ("app.view.top", "home", "to the beginning"),
        ("app.view.bottom", "end", "to the end"),
        ("app.view.search", "slash", "search what an agent has said"),
        ("app.view.searchNext", "n", "the next place"),
        ("app.view.searchPrevious", "N", "the place before"),
        ("app.view.say", "enter", "say something to the agent"),
        ("app.view.stop", "x", "twice: stop the agent"),
        ("app.view.close", "q", "close"),
        ("app.activity.refresh", "r", "read the log of tools again"),
        ("app.activity.clear", "c", "clear the log of tools"),
        ("app.activity.count", "s", "count what tools do from now on"),
    ),
}
DEFAULTS = {action: keys for section in _TABLE.values() for action, keys, _ in section}
_NAMES = {
    "esc": "escape",
    "return": "enter",
    "`": "grave_accent",
    "-": "minus",
    "=": "equals_sign",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "\\": "backslash",
    ";": "semicolon",
    "'": "apostrophe",
    ",": "comma",
    ".": "full_stop",
    "/": "slash",
    "!": "exclamation_mark",
    "@": "at",
    "#": "number_sign",
    "$": "dollar_sign",
    "%": "percent_sign",
    "^": "circumflex_accent",
    "&": "ampersand",
    "*": "asterisk",
    "(": "left_parenthesis",
    ")": "right_parenthesis",
    "_": "underscore",
    "+": "plus",
    "|": "vertical_line",
    "~": "tilde",
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
    ":": "colon",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "?": "question_mark",
}
_SHOWN = {name: sign for sign, name in _NAMES.items()} | {"escape": "esc", "enter": "enter"}
_ORDER = ("alt", "ctrl", "shift", "super")


@dataclass(frozen=True, slots=True)
class Hotkey:
    """One line of `/hotkeys`."""

    section: str
    action: str
    keys: tuple[str, ...]
    help: str


class KeyTable:
    """The default keys with the user's changes."""

    def __init__(self, wanted: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """`wanted`: keys by action in pi's spelling; an empty tuple switches an action off."""
        self._wanted = {
            action: tuple(to_textual(key) for key in keys)
            for action, keys in (wanted or {}).items()
            if action in DEFAULTS and (keys or action not in KEPT)
        }

    @property
    def keymap(self) -> dict[str, str]:
        """Textual's keymap; only what differs from the defaults."""
        return {action: ",".join(keys) or NO_KEY for action, keys in self._wanted.items()}

    def find(self, action: str) -> tuple[str, ...]:
        default = tuple(key for key in DEFAULTS.get(action, "").split(",") if key)
        return self._wanted.get(action, default)

    def means(self, key: str, action: str) -> bool:
        """Whether a key is bound to an action."""
        return key in self.find(action)

    def show(self, action: str) -> str:
        """The first key of an action as shown to the user; empty if it has none."""
        keys = self.find(action)
        return show_key(keys[0]) if keys else ""

    def list(self) -> "list[Hotkey]":
        """All actions, by section."""
        return [
            Hotkey(section, action, self.find(action), text)
            for section, rows in _TABLE.items()
            for action, _, text in rows
        ]


def to_textual(key: str) -> str:
    """Convert a key from pi's spelling to Textual's."""
    key = key.lower()
    name = "+" if key.endswith("+") else key.rpartition("+")[2]
    modifiers = key[: len(key) - len(name)].strip("+").split("+") if len(key) > len(name) else []
    if "shift" in modifiers and len(name) == 1 and name.isalpha() and len(modifiers) == 1:
        return name.upper()  # terminals send the capital letter itself
    ordered = [each for each in _ORDER if each in modifiers]
    return "+".join([*ordered, _NAMES.get(name, name)])


def show_key(key: str) -> str:
    """Convert a key from Textual's spelling to what the user sees."""
    *modifiers, name = key.split("+")
    return "+".join([*modifiers, _SHOWN.get(name, name)])


def bind(action: str, method: str, *, is_first: bool = False) -> Binding:
    """Bind an action's keys to a method; with `is_first`, before the focused widget sees them."""
    return Binding(DEFAULTS[action] or NO_KEY, method, "", show=False, priority=is_first, id=action)
