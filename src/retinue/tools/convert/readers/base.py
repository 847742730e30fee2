"""Errors and limits that all document readers share."""

MAX_TEXT_CHARS = 4_000_000
"""More than is ever shown."""


class Unreadable(Exception):
    """Raised for a document that cannot be read; the message is for the model."""


class Unsupported(Exception):
    """Raised for a format without a reader."""


def join_blocks(blocks: list[str]) -> str:
    """Join blocks with blank lines, up to the size limit."""
    used = 0
    kept: list[str] = []
    for block in blocks:
        if used > MAX_TEXT_CHARS:
            break
        if block.strip():
            kept.append(block)
            used += len(block)
    return "\n\n".join(kept)[:MAX_TEXT_CHARS]
