"""Key bindings: the default keys of each action, and changes from pi's `keybindings.json`. Must not know widgets.

Actions have pi's names, so that one file serves both programs.
"""

import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS

NO_KEY = "no-key"
"""The binding of an action that the user has switched off; no terminal sends this key."""
KEPT = frozenset({"tui.select.cancel"})
"""Actions that always have a key: without this one, a user could not leave a list."""

# By section of `/hotkeys`: action, default keys in Textual's spelling, and help.
_TABLE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Conversation": (
        ("tui.input.submit", "enter", "send; while the agent works: deliver before its next reply"),
        ("app.message.followUp", "alt+enter", "send; while the agent works: deliver when it has finished"),
        ("app.message.dequeue", "alt+up", "move queued messages back into the editor"),
        ("app.interrupt", "escape", "stop the agent; again: its subagents too; twice while idle: session tree"),
        ("app.limit.fallback", "f7", "at a provider's usage limit: use the fallback models now"),
        ("app.resend", "f9", "stop the agent and send queued messages now"),
        ("app.clear", "ctrl+c", "clear the editor, or stop the agent; twice while idle: exit"),
        ("app.exit", "ctrl+d", "exit, if the editor is empty"),
        ("app.suspend", "ctrl+z", "suspend the program"),
    ),
    "Models and display": (
        ("app.model.select", "ctrl+l", "select a model"),
        ("app.model.cycleForward", "ctrl+p", "next model"),
        ("app.model.cycleBackward", "ctrl+shift+p", "previous model"),
        ("app.models.save", "ctrl+s", "in model lists: save the choice for all sessions"),
        ("app.models.enableAll", "ctrl+a", "in /scoped-models: enable all models, or all search results"),
        ("app.models.clearAll", "ctrl+x", "in /scoped-models: disable all models, or all search results"),
        ("app.models.toggleProvider", "ctrl+p", "in /scoped-models: enable or disable a provider's models"),
        ("app.models.reorderUp", "alt+up", "in /scoped-models: move a model up"),
        ("app.models.reorderDown", "alt+down", "in /scoped-models: move a model down"),
        ("app.thinking.cycle", "shift+tab", "next thinking level"),
        ("app.approvals.select", "", "choose which tool calls need your approval"),
        ("app.thinking.save", "ctrl+s", "in the list of thinking levels: save the choice for all sessions"),
        ("app.thinking.toggle", "ctrl+t", "expand or collapse thinking"),
        ("app.tools.expand", "ctrl+o", "expand or collapse everything"),
        ("app.message.copy", "ctrl+x", "copy the last reply"),
        ("app.session.new", "", "start a new session"),
        ("app.session.tree", "", "open the session tree"),
        ("app.session.fork", "", "fork the session before one of your messages"),
        ("app.session.resume", "", "resume another session"),
    ),
    "Scrolling and search": (
        ("tui.altScreen.pageUp", "pageup", "page up"),
        ("tui.altScreen.pageDown", "pagedown", "page down"),
        ("tui.altScreen.halfPageUp", "", "half a page up"),
        ("tui.altScreen.halfPageDown", "", "half a page down"),
        ("tui.altScreen.lineUp", "", "line up"),
        ("tui.altScreen.lineDown", "", "line down"),
        ("tui.altScreen.previousPrompt", "ctrl+shift+up,ctrl+up", "your previous message"),
        ("tui.altScreen.nextPrompt", "ctrl+shift+down,ctrl+down", "your next message"),
        ("tui.altScreen.top", "ctrl+home", "start of the conversation"),
        ("tui.altScreen.bottom", "ctrl+end", "end of the conversation, and follow it again"),
        ("tui.altScreen.search", "ctrl+shift+f,f3", "search the conversation"),
        ("tui.altScreen.searchNext", "enter,ctrl+g", "while searching: next result"),
        ("tui.altScreen.searchPrevious", "shift+enter,ctrl+shift+g", "while searching: previous result"),
        ("tui.altScreen.searchClose", "escape", "while searching: close the search"),
    ),
    "Editor": (
        ("tui.input.newLine", "shift+enter,ctrl+j", "new line"),
        ("tui.input.tab", "tab", "complete"),
        ("app.editor.external", "ctrl+g", "edit in your own editor"),
        ("app.clipboard.pasteImage", "ctrl+v", "paste an image or text from the clipboard"),
        ("tui.input.copy", "ctrl+c", "copy the selection"),
        ("tui.editor.cursorUp", "up", "line up; in the first line: previous prompt"),
        ("tui.editor.cursorDown", "down", "line down; in the last line: next prompt"),
        ("tui.editor.historyPrevious", "", "previous prompt"),
        ("tui.editor.historyNext", "", "next prompt"),
        ("tui.editor.historySearch", "ctrl+r", "search your earlier prompts; again: an older one"),
        ("tui.editor.cursorLeft", "left,ctrl+b", "left"),
        ("tui.editor.cursorRight", "right,ctrl+f", "right"),
        ("tui.editor.cursorWordLeft", "alt+left,ctrl+left,alt+b", "word left"),
        ("tui.editor.cursorWordRight", "alt+right,ctrl+right,alt+f", "word right"),
        ("tui.editor.cursorLineStart", "home,ctrl+a", "start of the line"),
        ("tui.editor.cursorLineEnd", "end,ctrl+e", "end of the line"),
        ("tui.editor.jumpForward", "ctrl+right_square_bracket", "jump forward to the character you type next"),
        ("tui.editor.jumpBackward", "alt+ctrl+right_square_bracket", "jump back to the character you type next"),
        ("tui.editor.pageUp", "ctrl+pageup", "page up in the editor"),
        ("tui.editor.pageDown", "ctrl+pagedown", "page down in the editor"),
        ("tui.editor.deleteCharBackward", "backspace", "delete the character before the cursor"),
        ("tui.editor.deleteCharForward", "delete", "delete the character after the cursor"),
        ("tui.editor.deleteWordBackward", "ctrl+w,alt+backspace,ctrl+backspace", "delete the word before the cursor"),
        ("tui.editor.deleteWordForward", "alt+d,alt+delete", "delete the word after the cursor"),
        ("tui.editor.deleteToLineStart", "ctrl+u", "delete to the start of the line"),
        ("tui.editor.deleteToLineEnd", "ctrl+k", "delete to the end of the line"),
        ("tui.editor.yank", "ctrl+y", "insert the text that was deleted last"),
        ("tui.editor.yankPop", "alt+y", "replace it with the text deleted before"),
        ("tui.editor.undo", "ctrl+underscore,ctrl+minus", "undo"),
        ("tui.editor.redo", "ctrl+shift+z", "redo"),
        ("tui.editor.selectLeft", "shift+left", "select left"),
        ("tui.editor.selectRight", "shift+right", "select right"),
        ("tui.editor.selectUp", "shift+up", "select a line up"),
        ("tui.editor.selectDown", "shift+down", "select a line down"),
        ("tui.editor.selectWordLeft", "ctrl+shift+left", "select a word left"),
        ("tui.editor.selectWordRight", "ctrl+shift+right", "select a word right"),
        ("tui.editor.selectLineStart", "shift+home", "select to the start of the line"),
        ("tui.editor.selectLineEnd", "shift+end", "select to the end of the line"),
    ),
    "Lists and questions": (
        ("tui.select.up", "up", "previous row"),
        ("tui.select.down", "down", "next row"),
        ("tui.select.pageUp", "pageup", "page up"),
        ("tui.select.pageDown", "pagedown", "page down"),
        ("tui.select.confirm", "enter", "select"),
        ("tui.select.cancel", "escape,ctrl+c", "cancel"),
        ("app.menu.enter", "right", "select"),
        ("app.menu.back", "left", "back, if the search is empty"),
        ("app.text.done", "ctrl+s", "in text dialogs: done"),
        ("app.fleet.open", "down,left", "in an empty editor: select an agent in the list below"),
        ("app.question.aside", "tab", "switch between the question and the editor"),
        ("app.question.scrollUp", "shift+up", "scroll the question up"),
        ("app.question.scrollDown", "shift+down", "scroll the question down"),
        ("app.trust.yes", "y", "use this folder's configuration this time"),
        ("app.trust.always", "a", "always use it"),
        ("app.trust.no", "n", "do not use it this time"),
        ("app.trust.never", "v", "never use it"),
    ),
    "Sessions": (
        ("app.session.togglePath", "ctrl+p", "in the session list: show or hide paths"),
        ("app.session.toggleSort", "ctrl+s", "in the session list: change the sort order"),
        ("app.session.toggleNamedFilter", "ctrl+n", "in the session list: show only named sessions, or all"),
        ("app.session.rename", "ctrl+r", "in the session list: rename a session"),
        ("app.session.delete", "ctrl+d", "in the session list, twice: delete a session"),
        ("app.session.deleteNoninvasive", "ctrl+backspace", "the same, if the search is empty"),
        ("app.tree.foldOrUp", "ctrl+left,alt+left", "in the tree: fold the branch, or go to its start"),
        ("app.tree.unfoldOrDown", "ctrl+right,alt+right", "in the tree: unfold the branch, or go to the next one"),
        ("app.tree.editLabel", "L", "in the tree: label an entry"),
        ("app.tree.toggleLabelTimestamp", "T", "in the tree: show or hide when labels were set"),
        ("app.tree.filter.default", "ctrl+d", "in the tree: messages and tool results"),
        ("app.tree.filter.noTools", "ctrl+t", "in the tree: without tool results"),
        ("app.tree.filter.userOnly", "ctrl+u", "in the tree: only your messages"),
        ("app.tree.filter.labeledOnly", "ctrl+l", "in the tree: only labelled entries"),
        ("app.tree.filter.all", "ctrl+a", "in the tree: all entries"),
        ("app.tree.filter.cycleForward", "ctrl+o", "in the tree: next filter"),
        ("app.tree.filter.cycleBackward", "ctrl+shift+o", "in the tree: previous filter"),
    ),
    "Agents and reports": (
        ("app.view.lineUp", "k", "line up"),
        ("app.view.lineDown", "j", "line down"),
        ("app.view.pageUp", "shift+up", "page up"),
        ("app.view.pageDown", "shift+down,space", "page down"),
        ("app.view.top", "home", "start"),
        ("app.view.bottom", "end", "end"),
        ("app.view.search", "slash", "search the agent's conversation"),
        ("app.view.searchNext", "n", "next result"),
        ("app.view.searchPrevious", "N", "previous result"),
        ("app.view.say", "enter", "send a message to the agent"),
        ("app.view.stop", "x", "twice: stop the agent"),
        ("app.view.close", "q", "close"),
        ("app.activity.refresh", "r", "reload the tool log"),
        ("app.activity.clear", "c", "clear the tool log"),
        ("app.activity.count", "s", "reset the tool counts"),
        ("app.landing.refresh", "r", "reload the branches of agents"),
        ("app.landing.all", "l", "land all branches of agents"),
    ),
}
DEFAULTS = {action: keys for section in _TABLE.values() for action, keys, _ in section}
_NAMES = {"esc": "escape", "return": "enter"} | {
    sign: KEY_NAME_REPLACEMENTS.get(name, name)
    for sign in string.punctuation
    for name in [unicodedata.name(sign).lower().replace("-", "_").replace(" ", "_")]
}
"""Textual's names of keys, by pi's."""
_SHOWN = {name: sign for sign, name in _NAMES.items()} | {"enter": "enter"}
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

    def step(self, key: str, back: str, forward: str) -> int:
        """-1 or 1 if a key is bound to the one or the other action, else 0."""
        return -1 if self.means(key, back) else int(self.means(key, forward))

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


def bind_all(methods: Mapping[str, str], *, is_first: bool = False) -> list[BindingType]:
    """Bind each method to one action, or to several that are separated by blanks."""
    return [
        bind(action, method, is_first=is_first) for method, actions in methods.items() for action in actions.split()
    ]
