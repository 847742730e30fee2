"""Reads arguments that may come one by one or as a list. Pure."""

from typing import Any


def merge_texts(one: Any, many: Any) -> list[str]:
    """All texts that are not blank, trimmed, each once."""
    found = [one, *(many if isinstance(many, list) else ())]
    return list(dict.fromkeys(text.strip() for text in found if isinstance(text, str) and text.strip()))
