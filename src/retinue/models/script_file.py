"""Load scripts from JSON or JSON lines files; errors name the file and the position."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Struct

from retinue.core.errors import ConfigError, quote
from retinue.core.model import FailureKind
from retinue.models.failures import RETRYABLE
from retinue.models.script import (
    Count,
    Duration,
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

_PAGE = "docs/reference/scripts.md"
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

Value = TypeVar("Value")


class _ScriptFile(Struct, forbid_unknown_fields=True):
    replies: list[dict[str, Any]]
    repeat: bool = False


class _BlockFile(Struct, forbid_unknown_fields=True):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    name: str | None = None
    arguments: dict[str, Any] = {}
    id: str | None = None


class _ErrorFile(Struct, forbid_unknown_fields=True):
    message: str = ""
    kind: FailureKind = "request"
    status: Count | None = None
    retry_after_s: Duration | None = None
    retryable: bool | None = None
    times: Count | None = None


class _MatchFile(Struct, forbid_unknown_fields=True):
    last_user: str | None = None
    first_user: str | None = None
    system: str | None = None


class _ReplyFile(Struct, forbid_unknown_fields=True):
    text: str | None = None
    thinking: str | None = None
    calls: list[ScriptCall] = []
    blocks: list[_BlockFile] = []
    usage: ScriptUsage | None = None
    stop: Stop | None = None
    raw_stop: str | None = None
    error: str | _ErrorFile | None = None
    delay_ms: Duration = 0
    chunk_ms: Duration = 0
    chunk_chars: Count = 0
    match: _MatchFile | None = None
    fault: dict[str, Any] | list[dict[str, Any]] = []


def load_script(path: str | Path) -> Script:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the script: {error.strerror or error}") from error
    return parse_script(data, source=str(path))


def parse_script(data: str | bytes | list[Any] | dict[str, Any], *, source: str = "script") -> Script:
    """Parse a script from JSON text, JSON lines, or already parsed JSON."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if isinstance(data, bytes):
        data = _parse_text(data, source)
    if isinstance(data, list):
        data = {"replies": data}
    file = _convert(data, _ScriptFile, f"{source}: script")
    replies = (_to_reply(reply, f"{source}: replies[{index}]") for index, reply in enumerate(file.replies))
    return Script(tuple(replies), file.repeat, source)


def _parse_text(text: bytes, source: str) -> Any:
    """The whole text as JSON, or else the replies of JSON lines."""
    try:
        whole = orjson.loads(text)
        return whole if not isinstance(whole, dict) or whole.keys() & {"replies", "repeat"} else [whole]
    except orjson.JSONDecodeError as error:
        problem = error
    replies: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            replies += [orjson.loads(line)] if line.strip() else []
        except orjson.JSONDecodeError as error:
            # A text whose first line is not a reply is not meant as JSON lines.
            wrong = f"line {number} is not JSON: {error}" if replies else f"not JSON: {problem}"
            raise ConfigError(f"{source}: {wrong}") from error
    if not replies:
        raise ConfigError(f"{source}: the script is empty; see {_PAGE}")
    return replies


def _convert(data: Any, kind: type[Value], where: str) -> Value:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        wrong, _, path = str(error).partition(" - at `$")
        place = f"{where}{path.removesuffix('`')}"
        raise ConfigError(f"{quote(place, 400)[1:-1]}: {quote(wrong, 200)[1:-1]}; see {_PAGE}") from None


def _to_reply(data: dict[str, Any], where: str) -> ScriptReply:
    file = _convert(data, _ReplyFile, where)
    if "blocks" in data and data.keys() & {"text", "thinking", "calls"}:
        raise ConfigError(f"{where}: 'blocks' cannot be combined with 'text', 'thinking' or 'calls'; see {_PAGE}")
    blocks: list[ScriptBlock] = [_to_block(block, where) for block in file.blocks]
    blocks += [] if file.thinking is None else [ScriptThinking(file.thinking)]
    blocks += [] if file.text is None else [ScriptText(file.text)]
    faults = [file.fault] if isinstance(file.fault, dict) else file.fault
    return ScriptReply(
        blocks=(*blocks, *file.calls),
        usage=file.usage,
        stop=file.stop,
        raw_stop=file.raw_stop,
        error=_to_error(file),
        delay_ms=file.delay_ms,
        chunk_ms=file.chunk_ms,
        chunk_chars=file.chunk_chars,
        match=None if file.match is None else _to_match(file.match, where),
        faults=tuple(_to_fault(fault, f"{where}.fault[{index}]") for index, fault in enumerate(faults)),
    )


def _to_block(file: _BlockFile, where: str) -> ScriptBlock:
    if file.text is not None:
        return ScriptText(file.text)
    if file.thinking is not None:
        return ScriptThinking(file.thinking, file.signature)
    if file.name is not None:
        return ScriptCall(file.name, file.arguments, file.id)
    raise ConfigError(f"{where}: each block needs 'text', 'thinking' or 'name'; see {_PAGE}")


def _to_error(file: _ReplyFile) -> ScriptError | None:
    error = file.error
    if error is None:
        return ScriptError("the script ends this reply with an error") if file.stop == "error" else None
    if isinstance(error, str):
        return ScriptError(error)
    return ScriptError(
        message=error.message or f"scripted failure: {error.kind}",
        kind=error.kind,
        status=error.status,
        retry_after_s=error.retry_after_s,
        retryable=error.kind in RETRYABLE if error.retryable is None else error.retryable,
        times=error.times,
    )


def _to_match(file: _MatchFile, where: str) -> ScriptMatch:
    try:
        texts = (file.last_user, file.first_user, file.system)
        return ScriptMatch(*(None if text is None else re.compile(text) for text in texts))
    except re.error as error:
        raise ConfigError(f"{where}.match: not a regular expression: {error}; see {_PAGE}") from error


def _to_fault(data: dict[str, Any], where: str) -> ScriptFault:
    if isinstance(data.get("at"), dict) and data["at"].keys() == {"byte"}:
        data = {**data, "at": data["at"]["byte"]}
    if not isinstance(data.get("body", ""), str):
        data = {**data, "body": orjson.dumps(data["body"]).decode()}
    fault = _convert(data, ScriptFault, where)
    known = FAULT_FIELDS.get(fault.kind)
    if known is None:
        raise ConfigError(f"{where}: unknown kind {quote(fault.kind)}; choose one of: {', '.join(FAULT_FIELDS)}")
    if unknown := data.keys() - {"kind", "times", *known}:
        raise ConfigError(f"{where}: {fault.kind} has no field {quote(min(unknown))}; see {_PAGE}")
    return fault
