"""One command as it came in: parsed, and its fields read with clear words for what is wrong with them.

Knows JSON and messages, not what commands do.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent, UserContent

T = TypeVar("T", bound=str)


class Command:
    """A JSON object with a `type`."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.id = fields.get("id", msgspec.UNSET)
        """Whatever the caller has put there: an answer repeats it."""
        kind = fields.get("type")
        self.type = kind if isinstance(kind, str) else None

    def take_text(self, name: str) -> str:
        """A text that must be there."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            self._refuse(name, value, "a string")
        return value

    def find_text(self, name: str) -> str | None:
        """A text that may be missing."""
        return None if self.fields.get(name) is None else self.take_text(name)

    def take_choice(self, name: str, accepted: Sequence[T]) -> T:
        """One of a few words."""
        value = self.fields.get(name)
        for choice in accepted:
            if choice == value:
                return choice
        self._refuse(name, value, f"one of {', '.join(accepted)}")

    def take_flag(self, name: str) -> bool:
        """Yes or no."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            self._refuse(name, value, "true or false")
        return value

    def take_content(self) -> list[UserContent]:
        """The `message`, with its `images`."""
        images = self.fields.get("images") or []
        text = self.take_text("message")
        if not isinstance(images, list):
            self._refuse("images", images, "a list of images")
        blocks: list[UserContent] = [TextContent(text)] if text or not images else []
        for number, image in enumerate(images):
            try:
                blocks.append(msgspec.convert(image, ImageContent))
            except msgspec.MsgspecError:
                self._refuse(f"images[{number}]", image, 'an object with "type": "image", "data" and "mimeType"')
        return blocks

    def _refuse(self, name: str, value: Any, accepted: str) -> NoReturn:
        given = "is missing" if value is None else f"is {quote(_show(value))}"
        raise UsageError(f"{self.type}: {name} {given}: expected {accepted}")


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)[:200]


def parse_command(line: bytes) -> Command:
    """The command of a line. Raises UsageError for anything that is none."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        value = _parse_slowly(line)
    if not isinstance(value, dict):
        raise UsageError("a command is a JSON object")
    return Command(value)


def _parse_slowly(line: bytes) -> Any:
    # Python's parser takes what the fast one refuses: lone surrogates, huge numbers, invalid UTF-8 once replaced.
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON value")

    try:
        return json.loads(line.decode("utf-8", "replace"), parse_constant=refuse)
    except RecursionError:
        raise UsageError("it is nested too deeply") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
