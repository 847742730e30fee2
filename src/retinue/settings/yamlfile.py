"""A small YAML file that a person wrote: its top entries, or the one thing that keeps it from being read.

Must not know what the entries mean. Only who has such a file pays for YAML.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.settings.bounds import Bound
from retinue.settings.files import read_text

if TYPE_CHECKING:
    from retinue.definitions.frontmatter import Entry

MAX_BYTES = 500_000


def is_there(path: Path) -> bool:
    """Whether something of this name exists, also when nobody can tell."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


class BrokenFile(Exception):
    """The file cannot be read; its text is the reason without the place."""

    def __init__(self, reason: str, problem: Diagnostic) -> None:
        super().__init__(reason)
        self.problem = problem


def load_entries(path: Path, code: str, bound: Bound | None = None) -> "tuple[Entry, ...]":
    """What stands at the top of an optional file. Raises BrokenFile, with a diagnostic of that code."""
    if not is_there(path):
        return ()
    from retinue.definitions.frontmatter import BlockError
    from retinue.definitions.yaml import read_yaml

    try:
        if not os.path.exists(path):
            raise ConfigError(f"{path}: cannot be read: it leads nowhere")
        text = read_text(path, MAX_BYTES, bound)
        return read_yaml(text, 1)[0] if text.strip() else ()
    except BlockError as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise BrokenFile(str(error), Diagnostic(f"{place}: {error}", str(path), error.line, "error", code)) from None
    except ConfigError as error:
        raise BrokenFile(str(error), Diagnostic(str(error), str(path), None, "error", code)) from None
