"""Keys that terminals send as an escape and another key, which textual would take for something else."""

from enum import Enum


class Combined(Enum):
    """Keys with Alt, by textual's names for them."""

    ENTER = "alt+enter"
    BRACKET = "alt+ctrl+right_square_bracket"
    B = "alt+b"
    F = "alt+f"
    BACKSPACE = "alt+backspace"


_SENT = {
    "\x1b\r": Combined.ENTER,
    "\x1b\x1d": Combined.BRACKET,
    # textual calls these three ctrl+left, ctrl+right and ctrl+w, so that nobody could give them another meaning.
    "\x1bb": Combined.B,
    "\x1bf": Combined.F,
    "\x1b\x7f": Combined.BACKSPACE,
    "\x1b\x08": Combined.BACKSPACE,
}


def teach_keys() -> None:
    """Let textual know them. Only terminals with a newer protocol tell them apart by themselves."""
    from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

    known: dict[str, object] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    known.update({sent: (key,) for sent, key in _SENT.items()})
