"""One parsed RPC command with typed access to its fields, and the link to the caller who sent it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from retinue.app import Retinue
from retinue.core.errors import UsageError, quote
from retinue.core.jsonline import encode_json
from retinue.core.messages import ImageContent, TextContent, UserContent

T = TypeVar("T", bound=str)


class RpcCommand:
    """A JSON object with a `type`. The `take_` methods raise UsageError for a missing or invalid field."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.id = fields.get("id", msgspec.UNSET)
        """The caller's id, of any type; the answer repeats it."""
        kind = fields.get("type")
        self.type = kind if isinstance(kind, str) else None

    def take_text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            self._refuse(name, value, "a string")
        return value

    def find_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.take_text(name)

    def take_choice(self, name: str, accepted: Sequence[T]) -> T:
        value = self.fields.get(name)
        for choice in accepted:
            if choice == value:
                return choice
        self._refuse(name, value, f"one of {', '.join(accepted)}")

    def take_flag(self, name: str) -> bool:
        value = self.fields.get(name)
        if not isinstance(value, bool):
            self._refuse(name, value, "true or false")
        return value

    def take_content(self) -> list[UserContent]:
        """The `message` with its `images`."""
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


def parse_command(line: bytes) -> RpcCommand:
    """Parse a command. Raises UsageError if the line is not a JSON object."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        value = _parse_slowly(line)
    if not isinstance(value, dict):
        raise UsageError("a command is a JSON object")
    return RpcCommand(value)


def _parse_slowly(line: bytes) -> Any:
    # Python's parser accepts what msgspec rejects: lone surrogates, huge numbers, invalid UTF-8 once replaced.
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a JSON value")

    try:
        return json.loads(line.decode("utf-8", "replace"), parse_constant=refuse)
    except RecursionError:
        raise UsageError("it is nested too deeply") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


Start = Callable[[Coroutine[Any, Any, object]], "asyncio.Task[None]"]


class RpcConnection:
    """Connects one caller with the Retinue."""

    def __init__(self, crew: Retinue, write: Callable[[bytes], None], start: Start) -> None:
        """`start` runs work in the background; it reports failures and MUST NOT raise them."""
        self.crew = crew
        self.is_open = True
        """False after the caller has disconnected."""
        self.compacting: asyncio.Task[Any] | None = None
        """The task of a compaction that the caller requested."""
        self.is_compacting = False
        """Whether any compaction is running."""
        self._write = write
        self._start = start
        self._prompting: asyncio.Task[None] | None = None

    def send(self, record: dict[str, Any]) -> None:
        """Send a record to the caller."""
        self._write(encode_json(record) + b"\n")

    @property
    def is_busy(self) -> bool:
        """Whether the main agent works or is about to start."""
        return self._prompting is not None or self.crew.is_busy

    def start_prompt(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a prompt in the background."""
        self._prompting = self._start(work)
        self._prompting.add_done_callback(self._forget)

    async def abort(self, *, spares_runs: bool = False) -> None:
        """Stop the main agent, and its subagents unless `spares_runs`; wait until they have stopped."""
        if self.compacting is not None and self.compacting is not asyncio.current_task():
            self.compacting.cancel()
            await asyncio.wait([self.compacting])
        # A prompt that was just accepted must start before it can be stopped.
        if self._prompting is not None and not self.crew.is_busy:
            await asyncio.sleep(0)
        if not spares_runs:
            self.crew.abort()
        while self.is_busy:
            self.crew.abort(spares_runs=spares_runs)
            await self.leave_prompt()
            await self.crew.rest()

    async def leave_prompt(self) -> None:
        """Wait until a stopped prompt has ended."""
        if self._prompting is not None:
            await asyncio.wait([self._prompting])
            await asyncio.sleep(0)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        if self._prompting is task:
            self._prompting = None


Action = Callable[[RpcConnection, RpcCommand], Any]
"""Returns the `data` of the answer, or awaits it; UNSET for none. Raises RetinueError for an error answer."""
Actions = Mapping[str, Action]


def name_actions(*actions: Action) -> Actions:
    return {action.__name__: action for action in actions}
