"""How much of an answer the caller's context gets. Pure."""

from dataclasses import dataclass

MAX_BYTES = 204_800
MAX_LINES = 5_000


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that may have been cut."""

    text: str
    """Headed by a line that says so when it was."""
    notice: str = ""
    """The same as a sentence; empty when it is whole."""


def cut_text(text: str) -> Cut:
    """The beginning of a text that is too long: whole lines first, then whole characters."""
    size, lines = len(text.encode(errors="replace")), text.count("\n") + 1
    if size <= MAX_BYTES and lines <= MAX_LINES:
        return Cut(text)
    kept = "\n".join(text.split("\n", MAX_LINES)[:MAX_LINES])
    kept = kept.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")
    shown, shown_size = kept.count("\n") + 1, len(kept.encode(errors="replace"))
    sizes = f"{_render_size(shown_size)} of {_render_size(size)}"
    head = f"[TRUNCATED: showing first {shown} of {lines} lines, {sizes}]"
    return Cut(f"{head}\n{kept}", f"Output truncated: showing {shown} of {lines} lines")


def name_rest(session_file: str, field: str) -> str:
    """Where the rest of a cut answer is: in the session, or in a field of the result when there is none."""
    where = f"the agent's session, {session_file}" if session_file else f"`{field}`"
    return f"The rest is in {where}."


def _render_size(size: int) -> str:
    if size < 1024:
        return f"{size}B"
    return f"{size / 1024:.1f}KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f}MB"
