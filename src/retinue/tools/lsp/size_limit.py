"""Holds what a server has sent, passed on as it is, to a size that a session can carry."""

import json
from typing import Any

from retinue.tools.lsp.call import MAX_CHARS


def bound(value: Any) -> Any:
    """The value itself, or the beginning of it as text."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_CHARS else {"truncated": True, "total": len(text), "text": text[:MAX_CHARS]}
