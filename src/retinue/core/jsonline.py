"""Encode any value as one line of ASCII JSON, for session files and event streams. Pure.

ASCII, because some readers split lines at U+2028 and similar characters.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

_MAX_DEPTH: Final = 128
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

_encoder = msgspec.json.Encoder(enc_hook=str)
_ascii_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


def encode_json(value: Any) -> bytes:
    """One line of ASCII JSON for any value: what JSON cannot represent is replaced. Never raises."""
    try:
        data = _encoder.encode(value)
        if data.isascii():
            return data
        return _ascii_encoder.encode(msgspec.to_builtins(value, enc_hook=str)).encode()
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, ValueError):
        # Lone surrogates, integers beyond 64 bits, endless nesting, NaN, unusual dictionary keys.
        return _ascii_encoder.encode(to_plain(value)).encode()


def to_plain(value: Any, *, longest: int | None = None, depth: int = 0) -> Any:
    """Copy a value as plain JSON values. Strings longer than `longest` are cut, with a note."""
    if isinstance(value, str):
        return clean_text(value, longest)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > _MAX_DEPTH:
        return "[nested too deeply for a record]"
    if isinstance(value, Struct):
        value = to_fields(value)
    if isinstance(value, Mapping):
        if longest is not None and value.get("type") == "image" and len(str(value.get("data"))) > longest:
            return {"type": "text", "text": "[image too long for a record]"}
        return {
            clean_text(str(key), None): to_plain(item, longest=longest, depth=depth + 1)
            for key, item in value.items()
            if item is not UNSET
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, longest=longest, depth=depth + 1) for item in value]
    return clean_text(str(value), longest)


def to_fields(value: Struct) -> dict[str, Any]:
    """The fields of a struct under their JSON names, with the values unchanged."""
    config = value.__struct_config__
    plain: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        plain[wire] = getattr(value, name)
    return plain


def clean_text(text: str, longest: int | None) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, and cut to `longest` with a note."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}\n[cut here: {len(text)} characters are too long for a record]"
    return _SURROGATE.sub("�", text) if not text.isascii() else text
