"""Entries of a session file in pi's format version 3: creating, encoding and tolerant decoding.

Must not know files, locks or which entries are on the active branch.
"""

import json
import math
from collections.abc import Container, Iterable, Mapping
from time import gmtime, strftime
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import UNSET, Struct, UnsetType

from retinue.core.errors import UsageError, quote
from retinue.core.jsonline import encode_json, to_fields, to_plain
from retinue.core.messages import ImageContent, Message, SystemMessage, TextContent, ThinkingContent, ToolCall, Usage

VERSION: Final = 3
MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""Longest line we write. Longer values are truncated, with a note in place."""

_BAD_JSON: Final = (msgspec.MsgspecError, ValueError, RecursionError, TypeError)


class EntryHead(Struct):
    """The fields of an entry that the tree needs; the decoder skips the rest of the line."""

    type: str = ""
    id: str | None = None
    parentId: str | UnsetType | None = UNSET
    """None for a root; UNSET if the field is missing, which is always damage."""


class Entry(Struct, rename="camel"):
    """An entry of any kind. Fields that a kind does not have are UNSET."""

    type: str
    id: str = ""
    timestamp: str = ""
    message: Message | UnsetType = UNSET
    provider: Any = UNSET
    model_id: Any = UNSET
    thinking_level: Any = UNSET
    summary: Any = UNSET
    first_kept_entry_id: Any = UNSET
    first_kept_entry_index: Any = UNSET
    tokens_before: Any = UNSET
    system_message: SystemMessage | UnsetType = UNSET
    from_hook: Any = UNSET
    from_id: Any = UNSET
    custom_type: Any = UNSET
    content: Any = UNSET
    display: Any = UNSET
    data: Any = UNSET
    details: Any = UNSET
    target_id: Any = UNSET
    replacement: Any = UNSET
    label: Any = UNSET
    name: Any = UNSET
    kind: Any = UNSET
    model: Any = UNSET
    usage: Any = UNSET


class RepairedEntry(Entry):
    """An entry that had to be repaired to be read."""

    lost: tuple[str, ...] = ()
    """Descriptions of the unreadable parts, to show to the user."""


_head_decoder = msgspec.json.Decoder(EntryHead)
_entry_decoder = msgspec.json.Decoder(Entry)
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class _Names(dict[str, bytes]):
    """Cache of JSON-encoded member names with their colon: there are few, and every line needs some."""

    def __missing__(self, name: str) -> bytes:
        self[name] = encoded = encode_json(name) + b":"
        return encoded


_names = _Names()


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """Encode the members of an entry without the braces, truncated to the maximum record size."""
    data = b",".join([_names[name] + encode_json(value) for name, value in fields.items()])
    longest = MAX_RECORD_BYTES // 16
    while len(data) > MAX_RECORD_BYTES and longest >= 16:
        data = encode_json({name: to_plain(value, longest=longest) for name, value in fields.items()})[1:-1]
        longest //= 8
    if len(data) > MAX_RECORD_BYTES:
        note = f"[{len(data)} bytes of small values, too many for a session record]"
        data = encode_json({name: _summarise(value, note) for name, value in fields.items()})[1:-1]
    return data


def _summarise(value: Any, note: str) -> Any:
    if not isinstance(value, Struct | Mapping):
        return note if isinstance(value, list | tuple | str) else to_plain(value)
    fields = to_fields(value) if isinstance(value, Struct) else value
    short: dict[str, Any] = {
        name: item for name, item in fields.items() if item is None or isinstance(item, str | int | float | bool)
    }
    if "content" in fields:
        short["content"] = [TextContent(note)]
    if "usage" in fields:
        short["usage"] = Usage()
    return short


def try_decode_head(line: bytes) -> EntryHead | None:
    """Decode type and links of a well-formed line; None for any other."""
    try:
        return _head_decoder.decode(line)
    except _BAD_JSON:
        return None


def decode_head(line: bytes) -> EntryHead | None:
    """Decode type and links of a line; None if it is not a JSON object."""
    head = try_decode_head(line)
    if head is not None:
        return head
    loose = _load_object(line)
    if loose is None:
        return None
    kind, entry_id, parent = loose.get("type"), loose.get("id"), loose.get("parentId", UNSET)
    return EntryHead(
        kind if isinstance(kind, str) else "",
        entry_id if isinstance(entry_id, str) else None,
        parent if parent is None or isinstance(parent, str) else UNSET,
    )


def decode_entry(line: bytes) -> Entry:
    """Decode an entry of any kind; its message is repaired if necessary, or UNSET if that is impossible."""
    try:
        return _entry_decoder.decode(line)
    except _BAD_JSON:
        loose = _load_object(line) or {}
    names = {field.encode_name: field.name for field in msgspec.structs.fields(Entry)}
    fields = {names[name]: value for name, value in loose.items() if name in names}
    for name in ("type", "id", "timestamp"):
        fields[name] = fields[name] if isinstance(fields.get(name), str) else ""
    lost: list[str] = []
    message = _mend_message(fields.get("message"), lost)
    system = _mend_message(fields.get("system_message"), lost)
    fields["message"] = UNSET if message is None else message
    fields["system_message"] = system if isinstance(system, SystemMessage) else UNSET
    return RepairedEntry(**fields, lost=tuple(lost))


def decode_object(line: bytes) -> dict[str, Any] | None:
    """Decode a line into plain values; None if it is not a JSON object."""
    try:
        loose = msgspec.json.decode(line)
    except _BAD_JSON:
        return _load_object(line)
    return loose if isinstance(loose, dict) else None


def _load_object(line: bytes) -> dict[str, Any] | None:
    # Python's parser accepts what msgspec rejects: lone surrogates, NaN, and invalid UTF-8 after replacement.
    try:
        loose = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return to_plain(loose) if isinstance(loose, dict) else None


def decode_message(data: bytes) -> Message | None:
    """Decode a message, repairing missing or invalid fields; None for an unknown role."""
    try:
        return _message_decoder.decode(data)
    except _BAD_JSON:
        return _mend_message(_load_object(data), [])


_ROLE_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "system": {"content": ""},
    "user": {"content": []},
    "assistant": {"content": [], "api": "", "provider": "", "model": "", "usage": {}, "stopReason": "stop"},
    "toolResult": {"toolCallId": "", "toolName": "", "content": [], "isError": False},
    "bashExecution": {"command": "", "output": "", "cancelled": False, "truncated": False},
    "custom": {"customType": "", "content": [], "display": False},
    "branchSummary": {"summary": "", "fromId": None},
    "compactionSummary": {"summary": "", "tokensBefore": 0},
}
_BLOCKS: Final[dict[str, frozenset[str]]] = {
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image"}),
    "assistant": frozenset({"text", "thinking", "toolCall"}),
    "toolResult": frozenset({"text", "image"}),
    "custom": frozenset({"text", "image"}),
}
_BLOCK_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "text": {"text": ""},
    "image": {},
    "thinking": {"thinking": ""},
    "toolCall": {"id": "", "arguments": {}},
}


def _mend_message(loose: Any, lost: list[str]) -> Message | None:
    """Repair a message; adds descriptions of unreadable parts to `lost`."""
    if not isinstance(loose, dict):
        lost += [] if loose is None else ["a message that is not an object"]
        return None
    role = "custom" if loose.get("role") == "hookMessage" else loose.get("role")
    if not isinstance(role, str) or role not in _ROLE_DEFAULTS:
        lost.append(f"a message of role {quote(role)}")
        return None
    mended = {**_ROLE_DEFAULTS[role], "timestamp": 0, **_drop_nulls(loose), "role": role}
    if role in _BLOCKS:
        mended["content"] = _mend_content(mended["content"], role, lost)
    if "usage" in mended:
        mended["usage"] = _mend_usage(mended["usage"])
    mended["timestamp"] = _mend_count(mended["timestamp"])
    for candidate in (mended, {**mended, "stopReason": "stop"}, _keep_required(mended, role)):
        try:
            message: Message = msgspec.convert(candidate, Message, strict=False)
        except _BAD_JSON:
            continue
        return message
    lost.append(f"a message of role {quote(role)}")
    return None


def _drop_nulls(loose: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in loose.items() if value is not None}


def _keep_required(mended: dict[str, Any], role: str) -> dict[str, Any]:
    defaults = _ROLE_DEFAULTS[role]
    kept = {name: mended[name] if type(mended[name]) is type(defaults[name]) else defaults[name] for name in defaults}
    if isinstance(mended.get("content"), str | list):
        kept["content"] = mended["content"]
    return {**kept, "stopReason": "stop", "role": role, "timestamp": mended["timestamp"]}


def _mend_content(content: Any, role: str, lost: list[str]) -> str | list[Any]:
    if isinstance(content, str):
        return content if role in {"system", "user", "custom"} else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        lost.append(f"the content of a message of role {quote(role)}")
        return []
    blocks = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _BLOCKS[role]:
            lost.append(f"a part of type {quote(kind)}")
            continue
        mended = {**_BLOCK_DEFAULTS[kind], **_drop_nulls(block)}
        if kind == "toolCall" and not isinstance(mended["arguments"], dict):
            lost.append(f"the arguments of a call of {quote(mended.get('name'))}")
            mended["arguments"] = {}
        for candidate in (mended, {name: mended.get(name) for name in ("type", *_BLOCK_DEFAULTS[kind], "name")}):
            try:
                msgspec.convert(candidate, TextContent | ImageContent | ThinkingContent | ToolCall)
            except _BAD_JSON:
                continue
            blocks.append(candidate)
            break
        else:
            lost.append("a tool call" if kind == "toolCall" else f"a part of type {quote(kind)}")
    return blocks


def _mend_count(value: Any) -> int:
    is_number = isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2**63
    return int(value) if is_number else 0


def _mend_usage(usage: Any) -> Usage:
    if not isinstance(usage, dict):
        return Usage()
    counts = {name: _mend_count(value) for name, value in _drop_nulls(usage).items() if name != "cost"}
    cost = usage.get("cost")
    try:
        return msgspec.convert(
            {**counts, "cost": _drop_nulls(cost) if isinstance(cost, dict) else {}}, Usage, strict=False
        )
    except _BAD_JSON:
        return Usage()


class TimestampFormat:
    """Renders ISO times; the part up to the second is cached because most calls share it."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second: int | None = None

    def render(self, now_ms: int) -> str:
        """Render like `2026-01-31T12:00:00.000Z`."""
        second, millis = divmod(now_ms, 1000)
        if second != self._second:
            self._second = second
            self._prefix = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
        return f"{self._prefix}.{millis:03d}Z"


def make_header(session_id: str, stamp: str, cwd: str, parent_session: str | None) -> dict[str, Any]:
    header = {"type": "session", "version": VERSION, "id": session_id, "timestamp": stamp, "cwd": cwd}
    return header if parent_session is None else {**header, "parentSession": parent_session}


def check_session_id(session_id: str) -> str:
    """Return the id if it is safe in a file name. Raises UsageError."""
    inner = session_id.replace("-", "").replace("_", "").replace(".", "")
    ends = session_id[:1] + session_id[-1:]
    if inner.isascii() and inner.isalnum() and ends.isalnum() and len(session_id) <= 128:
        return session_id
    raise UsageError(
        f"session id {quote(session_id)} is not usable: letters, digits, '-', '_' and '.' are, "
        "up to 128, beginning and ending with a letter or digit"
    )


_STRIDE: Final = 0x9E3779B1
"""Odd, so that repeated addition visits every 32-bit number."""
_stamp = TimestampFormat()


class NewEntry(NamedTuple):
    """An entry before it is encoded."""

    entry_id: str
    kind: str
    fields: dict[str, Any]
    at_ms: int


class EntryLine(NamedTuple):
    entry_id: str
    kind: str
    data: bytes


class EntryIds:
    """Generates ids that are unique within one file, by visiting every 32-bit number once."""

    def __init__(self, seed: str) -> None:
        self._place = crc32(seed.encode())

    def make(self, taken: Container[str]) -> str:
        while True:
            self._place = (self._place + _STRIDE) & 0xFFFFFFFF
            entry_id = f"{self._place:08x}"
            if entry_id not in taken:
                return entry_id


def render_notes(notes: Iterable[NewEntry], leaf_id: str | None) -> list[EntryLine]:
    """Encode a chain of entries, each the child of the one before; the first is a child of `leaf_id`."""
    lines = []
    for entry_id, kind, fields, at_ms in notes:
        stamp = _stamp.render(at_ms)
        head = f'{{"type":"{kind}","id":"{entry_id}","parentId":{_quote_id(leaf_id)},"timestamp":"{stamp}",'
        lines.append(EntryLine(entry_id, kind, b"".join((head.encode(), encode_fields(fields), b"}\n"))))
        leaf_id = entry_id
    return lines


def _quote_id(entry_id: str | None) -> str:
    # Our own ids are alphanumeric; an id read from a file may be anything.
    if entry_id is not None and entry_id.isascii() and entry_id.isalnum():
        return f'"{entry_id}"'
    return encode_json(entry_id).decode()
