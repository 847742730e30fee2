"""Short ways to parse one agent file in a test."""

from typing import Any

from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic
from retinue.definitions.discover import PARSERS


def parse(front: str, body: str = "Do it.", dialect: Any = "pi", **options: Any) -> tuple[Definition | None, list[str]]:
    """The definition in a file without the report on its fields, and the codes of what was told about it."""
    definition, told = inspect(front, body, dialect, **options)
    return definition and replace(definition, fields=()), [item.code for item in told]


def inspect(
    front: str, body: str = "Do it.", dialect: Any = "pi", path: str = "/x/file.md", **options: Any
) -> tuple[Definition | None, list[Diagnostic]]:
    """The definition in a file of these fields, and what was told about it."""
    found: tuple[Definition | None, list[Diagnostic]] = PARSERS[dialect](
        f"---\n{front}\n---\n{body}", path, options.pop("source", "user"), **options
    )
    return found


def read(front: str, dialect: Any = "pi", **options: Any) -> Definition:
    """The definition; there must be one."""
    definition, told = inspect(front, dialect=dialect, **options)
    assert definition is not None, told
    return definition
