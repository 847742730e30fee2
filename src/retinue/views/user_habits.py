"""What a terminal program knows of its user before anything of a project is read: keys, theme, and what was written."""

import os
from functools import cached_property

from retinue.settings.habits import HistoryFile, Wishes, load_theme, load_wishes, save_theme
from retinue.settings.keybindings import is_key, load_keybindings
from retinue.settings.paths import find_paths


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

    def load_wishes(self) -> tuple[Wishes, list[str]]:
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
