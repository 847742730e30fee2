"""Keys that terminals send as an escape and another key, which textual would take for the other key alone."""

from enum import Enum


class Combined(Enum):
    """Keys with Alt, by textual's names for them."""

    ENTER = "alt+enter"
    BRACKET = "alt+ctrl+right_square_bracket"


_SENT = {"\x1b\r": Combined.ENTER, "\x1b\x1d": Combined.BRACKET}


def teach_keys() -> None:
    """Let textual know them. Only terminals with a newer protocol tell them apart by themselves."""
    from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

    known: dict[str, object] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    known.update({sent: (key,) for sent, key in _SENT.items()})
