"""Strings that try to command a terminal or to deceive its reader, and what may come out of one of ours."""

import re

OSC = [f"\x1b]{number};x\x07" for number in (0, 1, 2, 4, 7, 8, 9, 10, 52, 133, 777, 1337, 7501)]
CSI = [
    f"\x1b[{body}" for body in ("31m", "2J", "H", "6n", "c", ">c", "5n", "?25l", "?1049h", "?1000h", "201~", "8;1;1t")
]
STRINGS = [f"\x1b{kind}body\x1b\\" for kind in "P_^X"] + ["\x1bPq#0;2;0;0;0#0~~\x1b\\"]
SINGLE = [f"\x1b{letter}" for letter in "c78DEMN=>#(*"] + [
    "\x1b",
    "\x1b[",
    "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
]
EIGHT_BIT = ["\x9b31m", "\x9d0;x\x9c", "\x90q\x9c", "\x84", "\x85", "\x8d"]
CONTROL = ["\x07", "\x08\x08\x08", "\rover", "\x0b", "\x0c", "\x0e", "\x0f", "\x7f", "\x00", "\x05"]
DECEIT = [
    "\u202egnp.exe",
    "\u2066a\u2069",
    "\u200eb\u200f",
    "\u061c",
    "\u200b" * 50,
    "\u2028",
    "\u2029",
    "\ufeff",
    "\u2060",
]
TAGS = [
    "\U000e0041\U000e0042\U000e007f",
    "\ufff9a\ufffab\ufffb",
    "e" + "\u0301" * 3000,
    "[red]x[/red]",
    "[@click=app.bell]x[/]",
]
ENTITIES = [
    "&#x202e;x",
    "&#27;[31m",
    "&#155;2J",
    "[a](javascript:x)",
    "<http://evil\x1b[2J>",
    "![x](file:///etc/passwd)",
]
ALL = [*OSC, *CSI, *STRINGS, *SINGLE, *EIGHT_BIT, *CONTROL, *DECEIT, *TAGS, *ENTITIES]
EVIL = "A" + "Z".join(text for text in ALL if "\u0301" not in text) + "Ω"
"""Most of them in one; a letter of its own at the end tells that it was shown."""

# What textual itself writes: colours, places, modes that it sets once, keys, the pointer's shape.
OURS = re.compile(
    r"\x1b\[[0-9;]*m|\x1b\[[0-9]+;[0-9]+H|\x1b\[\?(?:25|7|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
    r"|\x1b\[\?(?:2026|2048)\$p|\x1b\[[<>][0-9]*u|\x1b\]22;[a-z]+\x07"
)
QUERY = "\x1b]11;?\x1b\\"
"""Asks for the background of the terminal, once."""
CUT = re.compile(r"\x1b(?:[\[\]][<>?0-9;]*)?$")
"""The last sequence, when reading ended in the middle of it."""
UNSAFE = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def find_unsafe(output):
    """What in the bytes of a terminal is neither text nor ours."""
    text = output.decode("utf-8", "surrogateescape")
    rest = CUT.sub("", OURS.sub("", text.replace(QUERY, "", 1)))
    return [ascii(rest[max(0, found.start() - 40) : found.end() + 20]) for found in UNSAFE.finditer(rest)]


def count_modes(output):
    """How often the other screen and the mouse were switched: a text must not do it once more."""
    return output.count(b"\x1b[?1049"), output.count(b"\x1b]")
