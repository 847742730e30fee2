"""Stores user state between starts: the default model, the theme, the input history of each project.

Files are in the agent directory and private; one that cannot be read or written affects nothing else.
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
"""Longer inputs are not stored: nobody searches for them with the arrow keys."""
MOST_BYTES = 2 * 1024 * 1024


ESCAPES = ("tree", "fork", "none")
FILTERS = ("default", "no-tools", "user-only", "labeled-only", "all")


class TerminalSettings(Struct, frozen=True):
    """Terminal settings in the user's settings.json; a project cannot set them."""

    double_escape: str = "tree"
    """The action of pressing Escape twice in an empty editor: one of `ESCAPES`."""
    external_editor: str = ""
    """The editor command; empty for that of the environment."""
    tree_filter: str = "default"
    """Which entries the session tree shows at first: one of `FILTERS`."""


def load_wishes(paths: Paths) -> tuple[TerminalSettings, list[Diagnostic]]:
    """Load the terminal settings; invalid values are reported, errors of the whole file are not."""
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
    wishes = TerminalSettings(
        escape if escape in ESCAPES else "tree",
        editor.strip() if isinstance(editor, str) else "",
        shown if shown in FILTERS else "default",
    )
    return wishes, problems


class HistoryFile:
    """The inputs in one project, oldest first; several processes may append."""

    def __init__(self, paths: Paths) -> None:
        name = hashlib.sha256(os.fsencode(paths.project)).hexdigest()[:16]
        self.path = paths.own_dir / "history" / f"{name}.jsonl"

    def load(self) -> list[str]:
        """Return the last entries without broken lines; a file that has grown long is shortened."""
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
        """Append an input; errors are ignored."""
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
    """Return the name of the chosen theme; empty if none was chosen."""
    raw, _ = load_json(_find_file(paths))
    name = (raw or {}).get("theme")
    return name if isinstance(name, str) else ""


def save_theme(paths: Paths, name: str) -> None:
    """Store the theme; errors are ignored."""
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


class UserState:
    """User state for the project of the working directory. Every method reads or writes a small file at once."""

    def __init__(self) -> None:
        """Raises RetinueError without a home directory."""
        self._paths = find_paths(".", os.environ)

    @cached_property
    def history(self) -> HistoryFile:
        return HistoryFile(self._paths)

    def load_keys(self) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """Return the user's keys for actions, in pi's spelling, and problems in the file."""
        keys, problems = load_keybindings(self._paths)
        return keys, [problem.message for problem in problems]

    @staticmethod
    def is_key(text: str) -> bool:
        return is_key(text)

    def load_wishes(self) -> tuple[TerminalSettings, list[str]]:
        wishes, problems = load_wishes(self._paths)
        return wishes, [problem.message for problem in problems]

    @property
    def theme(self) -> str:
        """The name of the chosen theme; empty if none was chosen."""
        return load_theme(self._paths)

    def choose_theme(self, name: str) -> None:
        save_theme(self._paths, name)


class Defaults:
    """Stores the user's defaults. Each method returns what overrides the new value. Raises ConfigError."""

    def __init__(self, paths: Paths, loaded: LoadedSettings) -> None:
        self._path = paths.agent_dir / "settings.json"
        self._loaded = loaded
        is_file = loaded.find_origin("enabledModels") != "flag"
        self._scope = loaded.settings.enabled_models if is_file else ()

    def keep_model(self, info: ModelInfo) -> str:
        """Start with this model."""
        write_keys(self._path, {"defaultProvider": info.provider, "defaultModel": info.id})
        return self._find_other("defaultModel") or self._find_scope(info)

    def keep_thinking(self, level: ThinkingLevel) -> str:
        """Start with this thinking level."""
        write_keys(self._path, {"defaultThinkingLevel": level})
        return self._find_other("defaultThinkingLevel")

    def keep_scope(self, names: Sequence[str]) -> str:
        """Cycle through these models; empty for all."""
        if names:
            write_keys(self._path, {"enabledModels": list(names)})
        else:
            write_keys(self._path, {}, ("enabledModels",))
        self._scope = tuple(names)
        return self._find_other("enabledModels")

    def _find_scope(self, info: ModelInfo) -> str:
        """Return that sessions start with a model of a list that does not contain this one; else empty."""
        names = Names([info], {})
        is_in = not self._scope or any(match_pattern(pattern, names) for pattern in self._scope)
        return "" if is_in else "enabledModels, where it is not named,"

    def _find_other(self, key: str) -> str:
        """Return what overrides the user's file for a setting; empty if nothing does."""
        origin = self._loaded.find_origin(key)
        return "" if origin in ("default", "flag", str(self._path)) else origin
