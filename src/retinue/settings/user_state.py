"""Stores user state between starts: keys, theme, default model, the input history of each project.

Files are in the agent directory and private; one that cannot be read or written affects nothing else.
"""

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import orjson
from msgspec import Struct

from retinue.core.diagnostics import show_value, suggest
from retinue.core.errors import RetinueError, quote
from retinue.core.messages import ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.core.pattern import late_pattern
from retinue.models.resolve import Names, match_pattern
from retinue.sessions.files import make_private
from retinue.settings.decisions import replace_own, write_own
from retinue.settings.files import load_json, read_bounded
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


_NAMED = (
    r"escape|esc|enter|return|tab|space|backspace|delete|insert|clear|home|end|pageup|pagedown|up|down|left|right"
    r"|f(?:[1-9]|1[0-2])"
)
_KEY = late_pattern(
    rf"(?:(?:ctrl|shift|alt|super)\+)*(?:[a-z0-9]|[`\-=\[\]\\;',./!@#$%^&*()_+|~{{}}:<>?]|{_NAMED})", re.IGNORECASE
)


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

    def __init__(self, paths: Paths | None = None) -> None:
        """Raises RetinueError without a home directory."""
        self.paths = paths or find_paths(".", os.environ)

    @cached_property
    def history(self) -> HistoryFile:
        return HistoryFile(self.paths)

    def load_keys(self, actions: Collection[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """Return the keys of each action in pi's `keybindings.json`; an empty tuple removes an action's keys.

        An invalid entry, or one for an action that is not among `actions`, is dropped with a message.
        """
        path = self.paths.agent_dir / "keybindings.json"
        raw, unusable = load_json(path)
        problems = [problem.message for problem in unusable]
        found: dict[str, tuple[str, ...]] = {}
        for action, value in (raw or {}).items():
            if action == "$schema" or (value is None and action in actions):
                continue
            keys = [value] if isinstance(value, str) else value
            if action not in actions:
                text = f"unknown action {quote(action)}{suggest(action, actions)}; skipped; /hotkeys lists the names"
            elif not isinstance(keys, list) or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
                text = f"{action}: found {show_value(value)}; expected a key such as ctrl+l, or a list of keys"
            else:
                found[action] = tuple(dict.fromkeys(key.lower() for key in keys))
                continue
            problems.append(f"{path}: {text}")
        return found, problems

    @staticmethod
    def is_key(text: str) -> bool:
        """Return whether a text is a key in pi's spelling."""
        return _KEY.fullmatch(text) is not None

    def load_wishes(self) -> tuple[TerminalSettings, list[str]]:
        """Load the terminal settings; invalid values are reported, errors of the whole file are not."""
        path = self.paths.user_settings
        raw, problems = load_json(path)[0] or {}, list[str]()

        def read(key: str, default: str, choices: tuple[str, ...] = ()) -> str:
            value = raw.get(key, default)
            if isinstance(value, str) and (not choices or value in choices):
                return value.strip()
            accepted = f"{', '.join(choices)}; using {default}" if choices else "a command such as code --wait"
            problems.append(f"{path}: {key}: found {show_value(value)}; expected {accepted}")
            return default

        wishes = TerminalSettings(
            read("doubleEscapeAction", "tree", ESCAPES),
            read("externalEditor", ""),
            read("treeFilterMode", "default", FILTERS),
        )
        return wishes, problems

    @property
    def theme(self) -> str:
        """The setting `theme` of the user's settings.json, else what an earlier version stored; empty if not set."""
        name = (load_json(self.paths.user_settings)[0] or {}).get("theme")
        return name if isinstance(name, str) and name else self._read_choice("theme")

    @property
    def start(self) -> str:
        """How the user chose to work without a key: `local`, `offline`, or empty if not chosen yet."""
        return self._read_choice("start")

    def choose_theme(self, name: str) -> None:
        """Store the theme; errors are ignored."""
        with suppress(OSError, RetinueError):
            write_keys(self.paths.user_settings, {"theme": name})

    def choose_start(self, name: str) -> None:
        """Store how to work without a key; errors are ignored."""
        raw, problems = load_json(self._screen_file)
        with suppress(OSError, RetinueError):
            make_private(self._screen_file.parent)
            write_own(self._screen_file, {**({} if problems else raw or {}), "start": name})

    def _read_choice(self, key: str) -> str:
        name = (load_json(self._screen_file)[0] or {}).get(key)
        return name if isinstance(name, str) else ""

    @property
    def _screen_file(self) -> Path:
        return self.paths.own_dir / "screen.json"


class Defaults:
    """Stores the user's defaults. Each method returns what overrides the new value. Raises ConfigError."""

    def __init__(self, paths: Paths, loaded: LoadedSettings) -> None:
        self._path = paths.user_settings
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
