"""What all readers share: how they give up, and the limits on what they make."""

MAX_TEXT_CHARS = 4_000_000
"""More than anybody is shown."""


class Unreadable(Exception):
    """Raised for a document that cannot be read; the message is for the model."""


class Unsupported(Exception):
    """Raised for a format that no reader here knows."""


def join_blocks(blocks: list[str]) -> str:
    """Blocks with a blank line between them, cut where it is enough."""
    used = 0
    kept: list[str] = []
    for block in blocks:
        if used > MAX_TEXT_CHARS:
            break
        if block.strip():
            kept.append(block)
            used += len(block)
    return "\n\n".join(kept)[:MAX_TEXT_CHARS]
