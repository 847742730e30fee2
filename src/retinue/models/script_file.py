"""Load scripts from JSON or JSON lines files; errors name the file, position, value and what is accepted."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, get_args

import orjson

from retinue.core.errors import ConfigError, quote
from retinue.core.model import FailureKind
from retinue.models.failures import RETRYABLE
from retinue.models.script import (
    Position,
    Script,
    ScriptBlock,
    ScriptCall,
    ScriptError,
    ScriptFault,
    ScriptMatch,
    ScriptReply,
    ScriptText,
    ScriptThinking,
    ScriptUsage,
    Stop,
)

FAULT_FIELDS: dict[str, tuple[str, ...]] = {
    "absurd_usage": ("usage",),
    "bad_args": ("text", "size", "depth"),
    "bom": (),
    "close": ("at",),
    "comments": ("at", "interval_ms", "text"),
    "crlf": ("mix",),
    "duplicate_ids": ("id",),
    "empty": ("text",),
    "error_event": ("at", "error", "message"),
    "garbage": ("at", "text", "then"),
    "huge": ("mb", "chunk_chars"),
    "no_headers": (),
    "no_terminal": ("at",),
    "no_usage": (),
    "redirect": ("code", "location"),
    "reset": ("at",),
    "split": ("sizes", "seed", "interval_ms"),
    "stall": ("at",),
    "status": ("code", "headers", "body"),
    "trickle": ("at", "interval_ms"),
}

_REPLY_FIELDS = (
    "text", "thinking", "calls", "blocks", "usage", "stop", "raw_stop", "error", "delay_ms", "chunk_ms", "chunk_chars",
    "match", "fault",
)  # fmt: skip


def load_script(path: str | Path) -> Script:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the script: {error.strerror or error}") from error
    return parse_script(data, source=str(path))


def parse_script(data: str | bytes | list[Any] | dict[str, Any], *, source: str = "script") -> Script:
    """Parse a script from JSON text, JSON lines, or already parsed JSON."""
    if isinstance(data, str | bytes):
        data = _parse_text(data, source)
    repeat = False
    if isinstance(data, dict):
        top = _Node(source, "", data)
        top.check_fields(("replies", "repeat"))
        repeat = top.flag("repeat")
        if "replies" not in data:
            raise ConfigError(f"{source}: the field 'replies' is missing; accepted: a list of replies")
        data = data["replies"]
    nodes = _Node(source, "replies", data).items("a list of replies")
    return Script(tuple(_parse_reply(node) for node in nodes), repeat, source)


def _parse_text(data: str | bytes, source: str) -> Any:
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise ConfigError(f'{source}: the script is empty; accepted: {{"replies": [...]}}, a list, or JSON lines')
    try:
        first = orjson.loads(lines[0][1])
    except orjson.JSONDecodeError:
        first = None
    if not isinstance(first, dict) or first.keys() & {"replies", "repeat"}:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{source}: not JSON: {error}") from error
    replies = []
    for number, line in lines:
        try:
            replies.append(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{source}: line {number} is not JSON: {error}; accepted: one reply a line") from error
    return replies


def _parse_reply(node: "_Node") -> ScriptReply:
    node.check_fields(_REPLY_FIELDS)
    usage = node.child("usage")
    match = node.child("match")
    return ScriptReply(
        blocks=_parse_blocks(node),
        usage=_parse_usage(usage) if usage else None,
        stop=node.choice("stop", get_args(Stop)),
        raw_stop=node.text("raw_stop"),
        error=_parse_error(node),
        delay_ms=node.number("delay_ms"),
        chunk_ms=node.number("chunk_ms"),
        chunk_chars=node.whole("chunk_chars"),
        match=_parse_match(match) if match else None,
        faults=_parse_faults(node),
    )


def _parse_blocks(node: "_Node") -> tuple[ScriptBlock, ...]:
    blocks = node.child("blocks")
    if blocks is not None:
        for name in ("text", "thinking", "calls"):
            if name in node.value:
                node.fail(f"{name!r} cannot be combined with 'blocks'", "either 'blocks' or the single fields")
        return tuple(_parse_block(item) for item in blocks.items("a list of blocks"))
    found: list[ScriptBlock] = []
    thinking = node.text("thinking")
    text = node.text("text")
    calls = node.child("calls")
    if thinking is not None:
        found.append(ScriptThinking(thinking))
    if text is not None:
        found.append(ScriptText(text))
    if calls is not None:
        found.extend(_parse_call(item) for item in calls.items("a list of calls"))
    return tuple(found)


def _parse_block(node: "_Node") -> ScriptBlock:
    node.check_fields(("text", "thinking", "signature", "name", "arguments", "id"))
    if "text" in node.value:
        node.check_fields(("text",))
        return ScriptText(node.text("text") or "")
    if "thinking" in node.value:
        node.check_fields(("thinking", "signature"))
        return ScriptThinking(node.text("thinking") or "", node.text("signature"))
    if "name" in node.value:
        return _parse_call(node)
    node.fail(f"{quote(node.value)} is not a block", "an object with 'text', 'thinking' or 'name'")


def _parse_call(node: "_Node") -> ScriptCall:
    node.check_fields(("name", "arguments", "id"))
    name = node.text("name")
    if name is None:
        node.fail("the field 'name' is missing", "the name of a tool")
    return ScriptCall(name, node.table("arguments"), node.text("id"))


def _parse_usage(node: "_Node") -> ScriptUsage:
    node.check_fields(("input", "output", "cacheRead", "cacheWrite"))
    # Negative counts are allowed: some providers have this fault.
    return ScriptUsage(*(node.whole(name, least=-(2**63)) for name in ("input", "output", "cacheRead", "cacheWrite")))


def _parse_error(node: "_Node") -> ScriptError | None:
    value = node.value.get("error")
    if value is None:
        return ScriptError("the script ends this reply with an error") if node.value.get("stop") == "error" else None
    if isinstance(value, str):
        return ScriptError(value)
    error = _Node(node.source, f"{node.path}.error", value, "a text, or an object with 'message' and 'kind'")
    error.check_fields(("message", "kind", "status", "retry_after_s", "retryable", "times"))
    kind: FailureKind = error.choice("kind", get_args(FailureKind)) or "request"
    return ScriptError(
        message=error.text("message") or f"scripted failure: {kind}",
        kind=kind,
        status=error.whole("status") or None,
        retry_after_s=error.number("retry_after_s") if "retry_after_s" in error.value else None,
        retryable=error.flag("retryable", default=kind in RETRYABLE),
        times=error.whole("times") if "times" in error.value else None,
    )


def _parse_match(node: "_Node") -> ScriptMatch:
    node.check_fields(("last_user", "first_user", "system"))
    patterns: list[re.Pattern[str] | None] = []
    for name in ("last_user", "first_user", "system"):
        text = node.text(name)
        try:
            patterns.append(None if text is None else re.compile(text))
        except re.error as error:
            node.fail(f"{quote(text)} is not a regular expression: {error}", "Python's syntax", name)
    return ScriptMatch(*patterns)


def _parse_faults(node: "_Node") -> tuple[ScriptFault, ...]:
    fault = node.child("fault")
    if fault is None:
        return ()
    if isinstance(fault.value, list):
        return tuple(_parse_fault(item) for item in fault.items("a list of faults"))
    return (_parse_fault(fault),)


def _parse_fault(node: "_Node") -> ScriptFault:
    node.check_object()
    kind: str | None = node.choice("kind", tuple(FAULT_FIELDS))
    if kind is None:
        node.fail("the field 'kind' is missing", ", ".join(FAULT_FIELDS))
    node.check_fields(("kind", "times", *FAULT_FIELDS[kind]))
    given = {name: _FAULT_READERS[name](node, name) for name in node.value if name != "kind"}
    return ScriptFault(kind=kind, **given)


def _parse_position(node: "_Node", name: str) -> Position | int:
    value = node.value[name]
    if isinstance(value, dict):
        position = _Node(node.source, f"{node.path}.{name}", value)
        position.check_fields(("byte",))
        return position.whole("byte")
    chosen: Position = node.choice(name, get_args(Position), 'or {"byte": number}')
    return chosen


def _parse_headers(node: "_Node", name: str) -> dict[str, str]:
    headers = _Node(node.source, f"{node.path}.{name}", node.table(name))
    return {header: headers.text(header) or "" for header in headers.value}


def _parse_body(node: "_Node", name: str) -> str:
    body = node.value[name]
    return body if isinstance(body, str) else orjson.dumps(body).decode()


class _Node:
    """A value and its position in the file, for error messages."""

    def __init__(self, source: str, path: str, value: Any, accepted: str = "an object") -> None:
        self.source = source
        self.path = path
        self.value = value
        self.accepted = accepted

    def fail(self, wrong: str, accepted: str, field: str = "") -> NoReturn:
        place = ".".join(part for part in (self.path, field) if part)
        raise ConfigError(": ".join(filter(None, (self.source, place, f"{wrong}; accepted: {accepted}"))))

    def check_object(self) -> None:
        if not isinstance(self.value, dict):
            self.fail(f"{quote(self.value)} is not an object", self.accepted)

    def check_fields(self, known: Sequence[str]) -> None:
        self.check_object()
        for name in self.value:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                self.fail(f"unknown field {quote(name)}{hint}", ", ".join(known))

    def items(self, accepted: str) -> list["_Node"]:
        if not isinstance(self.value, list):
            self.fail(f"{quote(self.value)} is not a list", accepted)
        return [_Node(self.source, f"{self.path}[{index}]", item) for index, item in enumerate(self.value)]

    def child(self, name: str) -> "_Node | None":
        value = self.value.get(name)
        return None if value is None else _Node(self.source, ".".join(filter(None, (self.path, name))), value)

    def text(self, name: str) -> str | None:
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            self.fail(f"{quote(value)} is not text", "a string", name)
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self.value.get(name, {})
        if not isinstance(value, dict):
            self.fail(f"{quote(value)} is not an object", "a JSON object", name)
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.value.get(name, default)
        if not isinstance(value, bool):
            self.fail(f"{quote(value)} is not a boolean", "true, false", name)
        return value

    def whole(self, name: str, *, least: int = 0) -> int:
        value = self.value.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or (name in self.value and value < least):
            self.fail(f"{quote(value)} is not a valid number", f"a whole number from {least}", name)
        return value

    def number(self, name: str) -> float:
        value = self.value.get(name, 0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
            self.fail(f"{quote(value)} is not a valid number", "a number from 0", name)
        return value

    def choice(self, name: str, options: Sequence[str], more: str = "") -> Any:
        value = self.value.get(name)
        if value is None:
            return None
        if value not in options:
            close = get_close_matches(value, options, 1) if isinstance(value, str) else []
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            self.fail(f"{quote(value)} is unknown{hint}", " ".join(filter(None, (", ".join(options), more))), name)
        return value


_FAULT_READERS: dict[str, Callable[[_Node, str], Any]] = {
    **dict.fromkeys(("seed", "size", "depth", "times"), _Node.whole),
    **dict.fromkeys(("code", "sizes", "chunk_chars"), lambda node, name: node.whole(name, least=1)),
    **dict.fromkeys(("interval_ms", "mb"), _Node.number),
    **dict.fromkeys(("text", "message", "location", "id"), _Node.text),
    "at": _parse_position,
    "headers": _parse_headers,
    "body": _parse_body,
    "mix": _Node.flag,
    "then": lambda node, name: node.choice(name, ("end", "continue")),
    "error": lambda node, name: node.choice(name, get_args(FailureKind)),
    "usage": lambda node, name: _parse_usage(usage) if (usage := node.child(name)) else None,
}
