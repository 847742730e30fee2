"""The script of a conversation: the replies of a scripted model, or of the mock server in `retinue.testing`.

This file must not know the file format of a script, or how it is played.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from msgspec import Meta, Struct

from retinue.core.model import FailureKind

Stop: TypeAlias = Literal["stop", "length", "toolUse", "error", "refusal"]
Position: TypeAlias = Literal["head", "first_byte", "mid_text", "mid_args", "after_call", "last_byte"]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Duration: TypeAlias = Annotated[float, Meta(ge=0)]
EXHAUSTED = "the script has no further reply"


class ScriptText(Struct, frozen=True):
    text: str


class ScriptThinking(Struct, frozen=True):
    thinking: str
    signature: str | None = None


class ScriptCall(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    id: str | None = None


ScriptBlock: TypeAlias = ScriptText | ScriptThinking | ScriptCall


class ScriptUsage(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Token counts as in a session: `input` excludes tokens read from or written to a cache. Some may be negative."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class ScriptError(Struct, frozen=True):
    """A reply that fails; the fields are those of Failure."""

    message: str
    kind: FailureKind = "request"
    status: int | None = None
    retry_after_s: float | None = None
    retryable: bool = False
    times: int | None = None
    """How many attempts fail before the reply is played; None: all."""


class ScriptFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault on the wire; `script_file` lists the fields of each kind."""

    kind: str
    at: Position | Count | None = None
    """Position in the body; an int is a byte offset."""
    times: Count | None = None
    code: Count = 0
    headers: dict[str, str] = {}
    body: str | None = None
    interval_ms: Duration = 0
    text: str | None = None
    then: Literal["end", "continue"] = "end"
    sizes: Annotated[int, Meta(ge=1)] = 1
    seed: int | None = None
    mix: bool = False
    error: FailureKind = "overloaded"
    message: str = ""
    size: Count = 0
    depth: Count = 0
    location: str = ""
    mb: Duration = 1
    chunk_chars: Annotated[int, Meta(ge=1)] = 1000
    usage: ScriptUsage | None = None
    id: str = "call_same"


class ScriptMatch(Struct, frozen=True):
    """Conditions for a reply: every given expression must be found in its text."""

    last_user: re.Pattern[str] | None = None
    first_user: re.Pattern[str] | None = None
    system: re.Pattern[str] | None = None


class ScriptReply(Struct, frozen=True):
    blocks: tuple[ScriptBlock, ...] = ()
    usage: ScriptUsage | None = None
    """None: ten input tokens, and a quarter of the characters as output tokens."""
    stop: Stop | None = None
    """None: `toolUse` if there are calls, else `stop`."""
    raw_stop: str | None = None
    """The provider's stop reason, sent unchanged."""
    error: ScriptError | None = None
    delay_ms: float = 0
    chunk_ms: float = 0
    chunk_chars: int = 0
    """Characters per piece; 0: whole blocks."""
    match: ScriptMatch | None = None
    faults: tuple[ScriptFault, ...] = ()

    @property
    def calls(self) -> list[ScriptCall]:
        return [block for block in self.blocks if type(block) is ScriptCall]

    @property
    def stop_or_default(self) -> Stop:
        if self.stop is not None:
            return self.stop
        return "toolUse" if self.calls else "stop"

    @property
    def usage_or_default(self) -> ScriptUsage:
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
    """The parts of a request that select a reply."""

    users: Sequence[tuple[str, int]]
    """Each user message, with the number of assistant messages between it and the next one."""
    system: str = ""


class Script(Struct, frozen=True):
    replies: tuple[ScriptReply, ...]
    repeat: bool = False
    """Start again after the last reply, instead of failing."""
    source: str = "script"

    @property
    def has_matches(self) -> bool:
        """Whether the choice of a reply depends on more than the number of turns."""
        return any(reply.match is not None for reply in self.replies)

    def at(self, position: int) -> ScriptReply | None:
        """The reply after `position` assistant messages, for a script without matches."""
        return self._take(tuple(reply for reply in self.replies if reply.match is None), position)

    def find(self, exchange: ScriptContext) -> ScriptReply | None:
        """The reply to a request; None if there are no more replies."""
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
