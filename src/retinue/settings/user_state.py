"""What is kept of a user between two starts: the default model, the theme, what was written in each project.

All below the agent directory and the user's alone; a file that cannot be read or written costs nothing but itself.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import orjson
from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value
from retinue.core.errors import RetinueError
from retinue.core.messages import ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.models.resolve import Names, match_pattern
from retinue.sessions.files import make_private
from retinue.settings.decisions import replace_own
from retinue.settings.files import load_json, read_bounded
from retinue.settings.keybindings import is_key, load_keybindings
from retinue.settings.layers import LoadedSettings
from retinue.settings.paths import Paths, find_paths
from retinue.settings.preferences import write_keys

MOST_ENTRIES = 300
MOST_CHARS = 20_000
"""Longer words are not kept: nobody looks for them with the arrow keys."""
MOST_BYTES = 2 * 1024 * 1024


ESCAPES = ("tree", "fork", "none")
FILTERS = ("default", "no-tools", "user-only", "labeled-only", "all")


class TerminalWishes(Struct, frozen=True):
    """What the user's settings.json says about a terminal program; a project has no say in it."""

    double_escape: str = "tree"
    """What Escape does when it is pressed twice in an empty editor: one of `ESCAPES`."""
    external_editor: str = ""
    """The command to write with; empty for that of the environment."""
    tree_filter: str = "default"
    """How much of a session its tree shows at first: one of `FILTERS`."""


def load_wishes(paths: Paths) -> tuple[TerminalWishes, list[Diagnostic]]:
    """The wishes; a bad value is left out with a message. What is wrong with the file itself, others tell."""
    path = paths.agent_dir / "settings.json"
    raw, _ = load_json(path)
    found = raw or {}
    escape, editor = found.get("doubleEscapeAction", "tree"), found.get("externalEditor", "")
    problems = []
    if escape not in ESCAPES:
        text = f"{path}: doubleEscapeAction: found {show_value(escape)}; expected {', '.join(ESCAPES)}; using tree"
        problems.append(Diagnostic(text, str(path), code="settings", field="doubleEscapeAction"))
    if not isinstance(editor, str):
        text = f"{path}: externalEditor: found {show_value(editor)}; expected a command such as code --wait"
        problems.append(Diagnostic(text, str(path), code="settings", field="externalEditor"))
    shown = found.get("treeFilterMode", "default")
    if shown not in FILTERS:
        text = f"{path}: treeFilterMode: found {show_value(shown)}; expected {', '.join(FILTERS)}; using default"
        problems.append(Diagnostic(text, str(path), code="settings", field="treeFilterMode"))
    wishes = TerminalWishes(
        escape if escape in ESCAPES else "tree",
        editor.strip() if isinstance(editor, str) else "",
        shown if shown in FILTERS else "default",
    )
    return wishes, problems


class HistoryFile:
    """What was written in one project, oldest first; several programs may add to it."""

    def __init__(self, paths: Paths) -> None:
        name = hashlib.sha256(os.fsencode(paths.project)).hexdigest()[:16]
        self.path = paths.own_dir / "history" / f"{name}.jsonl"

    def load(self) -> list[str]:
        """The last entries; a line that is broken is left out, and a file that has grown long is shortened."""
        try:
            data = read_bounded(self.path, MOST_BYTES)
        except RetinueError:
            return []
        lines = (data or b"").split(b"\n")[:-1]
        found = [text for text in map(_read_line, lines) if text is not None]
        kept = found[-MOST_ENTRIES:]
        if len(lines) > 2 * MOST_ENTRIES or (data is not None and len(data) > MOST_BYTES // 2):
            with suppress(OSError, RetinueError):
                replace_own(self.path, b"".join(map(_write_line, kept)))
        return kept

    def add(self, text: str) -> None:
        """Keep one more."""
        if not text.strip() or len(text) > MOST_CHARS:
            return
        with suppress(OSError):
            make_private(self.path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(self.path, flags, 0o600)
            try:
                os.write(handle, _write_line(text))
            finally:
                os.close(handle)


def load_theme(paths: Paths) -> str:
    """The name of the chosen theme; empty when none was."""
    raw, _ = load_json(_find_file(paths))
    name = (raw or {}).get("theme")
    return name if isinstance(name, str) else ""


def save_theme(paths: Paths, name: str) -> None:
    """Remember a theme."""
    path = _find_file(paths)
    raw, problems = load_json(path)
    with suppress(OSError, RetinueError):
        make_private(path.parent)
        kept = {} if problems else dict(raw or {})
        replace_own(path, orjson.dumps({**kept, "theme": name}, option=orjson.OPT_INDENT_2) + b"\n")


def _find_file(paths: Paths) -> Path:
    return paths.own_dir / "screen.json"


def _read_line(line: bytes) -> str | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, str) and len(found) <= MOST_CHARS else None


def _write_line(text: str) -> bytes:
    return orjson.dumps(text.encode("utf-8", "replace").decode()) + b"\n"


class Habits:
    """Of the user, in the project of the working directory. Everything here reads or writes a small file at once."""

    def __init__(self) -> None:
        """Raises RetinueError when there is no home."""
        self._paths = find_paths(".", os.environ)

    @cached_property
    def history(self) -> HistoryFile:
        """What was written here before."""
        return HistoryFile(self._paths)

    def load_keys(self) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """The keys that the user wants for actions, spelled as pi does, and what is wrong with the file."""
        keys, problems = load_keybindings(self._paths)
        return keys, [problem.message for problem in problems]

    @staticmethod
    def is_key(text: str) -> bool:
        """Whether a text is a key as pi spells it."""
        return is_key(text)

    def load_wishes(self) -> tuple[TerminalWishes, list[str]]:
        """What the user's settings say about a terminal program, and what is wrong with that."""
        wishes, problems = load_wishes(self._paths)
        return wishes, [problem.message for problem in problems]

    @property
    def theme(self) -> str:
        """The name of the chosen theme; empty when none was."""
        return load_theme(self._paths)

    def choose_theme(self, name: str) -> None:
        """Remember a theme."""
        save_theme(self._paths, name)


class Defaults:
    """Of one user. Each method writes at once, returns what else decides about it, and raises ConfigError."""

    def __init__(self, paths: Paths, loaded: LoadedSettings) -> None:
        self._path = paths.agent_dir / "settings.json"
        self._loaded = loaded
        is_file = loaded.find_origin("enabledModels") != "flag"
        self._scope = loaded.settings.enabled_models if is_file else ()

    def keep_model(self, info: ModelInfo) -> str:
        """Begin with this model."""
        write_keys(self._path, {"defaultProvider": info.provider, "defaultModel": info.id})
        return self._find_other("defaultModel") or self._find_scope(info)

    def keep_thinking(self, level: ThinkingLevel) -> str:
        """Begin with this thinking level."""
        write_keys(self._path, {"defaultThinkingLevel": level})
        return self._find_other("defaultThinkingLevel")

    def keep_scope(self, names: Sequence[str]) -> str:
        """Turn through these models; none for all."""
        if names:
            write_keys(self._path, {"enabledModels": list(names)})
        else:
            write_keys(self._path, {}, ("enabledModels",))
        self._scope = tuple(names)
        return self._find_other("enabledModels")

    def _find_scope(self, info: ModelInfo) -> str:
        """That sessions begin with a model of a list that this one is not on; else empty."""
        names = Names([info], {})
        is_in = not self._scope or any(match_pattern(pattern, names) for pattern in self._scope)
        return "" if is_in else "enabledModels, where it is not named,"

    def _find_other(self, key: str) -> str:
        """Who decides a setting before the user's file does; empty when nobody does."""
        origin = self._loaded.find_origin(key)
        return "" if origin in ("default", "flag", str(self._path)) else origin
