"""Values in columns of JSON. Postgres has no character for NUL, and JSON none for half a pair: both are made to fit.

NUL comes back as it was; a lone surrogate comes back as the sign for what could not be read. Pure.
"""

import re
from typing import Any, TypeVar

import msgspec

from retinue.models.convert import clean_text

Value = TypeVar("Value")

_MARK = "\ufffe"
"""No character at all, so that hardly anybody has to be told apart from it."""
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_MARKED = re.compile(f"{_MARK}(.)")


def pack_json(value: Any) -> str:
    """A value for a column of JSON."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_clean(msgspec.to_builtins(value))).decode()
    text = text.replace(_MARK, _MARK + "m")
    return _NUL.sub(rf"\1{_MARK}0", text) if r"\u0000" in text else text


def unpack_json(text: str, kind: type[Value]) -> Value:
    """The value again. Raises msgspec.DecodeError for what was never one."""
    if _MARK in text:
        text = _MARKED.sub(lambda found: r"\u0000" if found[1] == "0" else _MARK, text)
    return msgspec.json.decode(text, type=kind)


def to_column(text: str) -> str:
    """The text for a column of text, which people read."""
    return clean_text(text).replace("\0", "\ufffd")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
