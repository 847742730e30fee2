"""Removes characters that a model reads and people do not see from untrusted text. Pure."""

import re

# Controls, surrogates, and characters that reorder, hide, pad or tag text. Joiners stay, because scripts need them.
_UNSEEN = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
    # One variation selector chooses the form of a sign; a row of them can encode a message.
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]+"
)


def drop_unseen(text: str) -> str:
    return _UNSEEN.sub("", text) if not text.isprintable() else text
