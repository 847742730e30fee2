"""The text of an agent file as somebody wrote it: read, judged, and put in place of the former one.

Must not know where agents are looked for, nor who wrote the text.
"""

import re
from pathlib import Path

from retinue.core.definition import Dialect
from retinue.core.errors import ConfigError
from retinue.core.tool_table import KNOWN_TOOLS
from retinue.definitions.discover import PARSERS
from retinue.settings.files import read_bounded
from retinue.tools.atomic_write import replace_file

MAX_BYTES = 500_000
_FENCED = re.compile(r"```[a-z]*\n(---\n.*?\n)```", re.DOTALL)


def read_manuscript(path: str) -> str:
    """The text of a file. Raises ConfigError."""
    data = read_bounded(Path(path), MAX_BYTES)
    if data is None or len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: {'is gone' if data is None else f'is larger than {MAX_BYTES} bytes'}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def write_manuscript(path: str, text: str) -> None:
    """Replace the text of a file, whole or not at all; through a link, that of the file it names."""
    try:
        replace_file(str(Path(path).resolve()), text.encode(), sync=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or 'unknown').lower()}") from None


def check_manuscript(text: str, path: str, dialect: Dialect) -> list[str]:
    """What is odd about a text that is to be an agent file. Raises ConfigError when it is none."""
    definition, problems = PARSERS[dialect](text, path, "user", known_tools=KNOWN_TOOLS)
    if definition is None:
        reason = problems[0].message if problems else f"{path}: is no agent file"
        raise ConfigError(f"{reason}; expected frontmatter between two lines of ---, and instructions below")
    return [problem.message for problem in problems]


def find_manuscript(answer: str) -> str:
    """The agent file in what a model answered; empty when there is none."""
    fenced = _FENCED.search(answer)
    text = fenced[1] if fenced else answer.strip()
    start = text.find("---\n")
    if start < 0 or text.count("\n---", start) < 1:
        return ""
    return text[start:].strip() + "\n"
