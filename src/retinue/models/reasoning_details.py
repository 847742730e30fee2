"""OpenRouter's `reasoning_details`: collected from a reply, kept as a signature, sent back unchanged. Pure."""

from typing import Any

import orjson
from msgspec import UnsetType

_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary", "reasoning.encrypted": "data"}


class ReasoningDetails:
    """Details of one reply; pieces of a text that follow each other are one detail."""

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []

    def add(self, details: Any) -> None:
        """Take the details of a message or of a delta."""
        for detail in details if isinstance(details, list) else ():
            if not _is_detail(detail):
                continue
            kind = detail["type"]
            last = self._details[-1] if self._details else {}
            if kind != "reasoning.encrypted" and last.get("type") == kind:
                last[_TEXTS[kind]] += detail[_TEXTS[kind]]
                for name, value in detail.items():
                    if last.get(name) is None:
                        last[name] = value
            else:
                self._details.append(dict(detail))

    def render(self) -> str:
        """The details as a signature; empty without any."""
        return orjson.dumps(self._details).decode() if self._details else ""


def parse_details(signature: str | UnsetType) -> list[dict[str, Any]]:
    """The details in a signature; empty when it is something else."""
    if not isinstance(signature, str) or not signature.startswith("["):
        return []
    try:
        details = orjson.loads(signature)
    except ValueError:
        return []
    return details if isinstance(details, list) and all(map(_is_detail, details)) else []


def _is_detail(detail: Any) -> bool:
    return isinstance(detail, dict) and isinstance(detail.get(_TEXTS.get(detail.get("type", ""), "")), str)
