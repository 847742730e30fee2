"""Shows file names that are not plain text: each stays on one line and is recognisable; pure."""

import os
import re

_CONTROL = "[\x00-\x1f\x7f\u0085\u2028\u2029\ud800-\udfff]"


def show_name(name: str) -> str:
    """A name for a line of output: control characters and bytes that are no UTF-8 as escapes."""
    return re.sub(_CONTROL, _escape, name)


def show_raw_name(raw: bytes) -> str:
    """The same for a name as the system gave it."""
    return show_name(os.fsdecode(raw))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(found[0]) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    )
