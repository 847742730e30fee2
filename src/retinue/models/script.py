"""The script of a conversation: what a scripted model, or the mock server of `retinue.testing`, answers turn by turn.

This file must not know how a script is written in a file, nor how it is played, over a wire or in the process.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import orjson
from msgspec import Struct

from retinue.core.model import FailureKind

Stop: TypeAlias = Literal["stop", "length", "toolUse", "error", "refusal"]
Position: TypeAlias = Literal["head", "first_byte", "mid_text", "mid_args", "after_call", "last_byte"]
FaultKind: TypeAlias = Literal[
    "absurd_usage",
    "bad_args",
    "bom",
    "close",
    "comments",
    "crlf",
    "duplicate_ids",
    "empty",
    "error_event",
    "garbage",
    "huge",
    "no_headers",
    "no_terminal",
    "no_usage",
    "redirect",
    "reset",
    "split",
    "stall",
    "status",
    "trickle",
]

RETRYABLE: frozenset[FailureKind] = frozenset({"rate", "overloaded", "network", "timeout", "stalled", "truncated"})
EXHAUSTED = "the script has no further reply"


class ScriptText(Struct, frozen=True):
    """A block of text."""

    text: str


class ScriptThinking(Struct, frozen=True):
    """A block of thinking."""

    thinking: str
    signature: str | None = None


class ScriptCall(Struct, frozen=True):
    """A tool call."""

    name: str
    arguments: dict[str, Any] = {}
    id: str | None = None


ScriptBlock: TypeAlias = ScriptText | ScriptThinking | ScriptCall


class ScriptUsage(Struct, frozen=True):
    """Tokens, counted as in a session: `input` leaves out what a cache gave or took."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class ScriptError(Struct, frozen=True):
    """A reply that fails, by what the caller learns of it."""

    message: str
    kind: FailureKind = "request"
    status: int | None = None
    retry_after_s: float | None = None
    retryable: bool = False
    times: int | None = None
    """How many attempts fail before the reply itself is played; None for all."""


class ScriptFault(Struct, frozen=True, kw_only=True):
    """A fault on the wire; which fields a kind takes is in `script_file`."""

    kind: FaultKind
    at: Position | int | None = None
    """Where in the body; an int is a byte offset."""
    times: int | None = None
    code: int = 0
    headers: dict[str, str] = {}
    body: str | None = None
    interval_ms: float = 0
    text: str | None = None
    then: Literal["end", "continue"] = "end"
    sizes: int = 1
    seed: int | None = None
    mix: bool = False
    error: FailureKind = "overloaded"
    message: str = ""
    size: int = 0
    depth: int = 0
    location: str = ""
    mb: float = 1
    chunk_chars: int = 1000
    usage: ScriptUsage | None = None
    id: str = "call_same"


class ScriptMatch(Struct, frozen=True):
    """When a reply is meant: every given expression is found in its text."""

    last_user: re.Pattern[str] | None = None
    first_user: re.Pattern[str] | None = None
    system: re.Pattern[str] | None = None


class ScriptReply(Struct, frozen=True):
    """One reply."""

    blocks: tuple[ScriptBlock, ...] = ()
    usage: ScriptUsage | None = None
    """None: ten tokens in, a quarter of the characters out."""
    stop: Stop | None = None
    """None: `toolUse` with calls, else `stop`."""
    raw_stop: str | None = None
    """The provider's own word, sent as it is."""
    error: ScriptError | None = None
    delay_ms: float = 0
    chunk_ms: float = 0
    chunk_chars: int = 0
    """Characters per piece; 0 for whole blocks."""
    match: ScriptMatch | None = None
    faults: tuple[ScriptFault, ...] = ()

    @property
    def calls(self) -> list[ScriptCall]:
        """The tool calls, in order."""
        return [block for block in self.blocks if type(block) is ScriptCall]

    @property
    def stop_or_default(self) -> Stop:
        """How the reply ends."""
        if self.stop is not None:
            return self.stop
        return "toolUse" if self.calls else "stop"

    @property
    def usage_or_default(self) -> ScriptUsage:
        """The tokens it reports."""
        if self.usage is not None:
            return self.usage
        chars = 0
        for block in self.blocks:
            if type(block) is ScriptText:
                chars += len(block.text)
            elif type(block) is ScriptThinking:
                chars += len(block.thinking)
            elif type(block) is ScriptCall:
                chars += len(block.name) + len(orjson.dumps(block.arguments))
        return ScriptUsage(input=10, output=max(1, chars // 4))


class ScriptContext(Struct, frozen=True):
    """What a script needs to know of a request to find its reply."""

    users: Sequence[tuple[str, int]]
    """Each user message with the number of assistant messages that follow it before the next one."""
    system: str = ""


class Script(Struct, frozen=True):
    """Replies in their order."""

    replies: tuple[ScriptReply, ...]
    repeat: bool = False
    """Begin again after the last reply, instead of failing."""
    source: str = "script"

    @property
    def has_matches(self) -> bool:
        """Whether the reply depends on more than the number of turns so far."""
        return any(reply.match is not None for reply in self.replies)

    def at(self, position: int) -> ScriptReply | None:
        """The reply to play after `position` assistant messages, when nothing is matched."""
        return self._take(tuple(reply for reply in self.replies if reply.match is None), position)

    def find(self, exchange: ScriptContext) -> ScriptReply | None:
        """The reply to play, by what was said; None when there is none left."""
        users = exchange.users or [("", 0)]
        track = self._track(exchange, users[-1][0])
        if any(reply.match is not None and reply.match.last_user is not None for reply in track):
            return self._take(track, users[-1][1])
        return self._take(track, sum(count for text, count in users if self._track(exchange, text) == track))

    def _track(self, exchange: ScriptContext, last_user: str) -> tuple[ScriptReply, ...]:
        first_user = exchange.users[0][0] if exchange.users else ""
        matched = tuple(
            reply
            for reply in self.replies
            if reply.match is not None
            and (reply.match.last_user is None or reply.match.last_user.search(last_user))
            and (reply.match.first_user is None or reply.match.first_user.search(first_user))
            and (reply.match.system is None or reply.match.system.search(exchange.system))
        )
        return matched or tuple(reply for reply in self.replies if reply.match is None)

    def _take(self, track: tuple[ScriptReply, ...], position: int) -> ScriptReply | None:
        if self.repeat and track:
            return track[position % len(track)]
        return track[position] if position < len(track) else None
