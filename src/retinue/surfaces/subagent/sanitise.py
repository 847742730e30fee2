"""Masks secrets and the home directory in the output of a child, and shortens stack traces. Pure."""

import re
from collections.abc import Collection
from typing import Any

from retinue.core.pattern import late_pattern

MASK = "[REDACTED]"
MAX_FRAMES = 5
FOLDED = "    ...\n    [Additional stack frames truncated]"

_NAMES = r"api[_-]?key|api[_-]?token|auth[_-]?token|access[_-]?token|secret[_-]?key|stripe[_-]?key"
# A name followed by a member, an index or a call is code, not a value.
_VALUE = r"""["']?\s*[:=]\s*["']?[A-Za-z0-9_-]{20,}(?![\w(\[-]|\.\w)["']?"""
_AWS_NAMES = r"aws[_-]?access[_-]?key[_-]?id|aws[_-]?secret[_-]?access[_-]?key"
_AWS_VALUE = r"""["']?\s*[:=]\s*["']?[A-Za-z0-9_\-./+=~]{20,}["']?"""
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"""(?m)^[ \t]*export[ \t]+\w+=(?:"[^"\n]{20,}"|'[^'\n]{20,}'|[^\s"']{20,}).*$"""),
        "[ENV_VAR_REDACTED]",
    ),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_\w{36,}"), "[GITHUB_TOKEN_REDACTED]"),
    (re.compile(r"(?i)([?&](?:api_key|token|secret|auth)=)[^&\s\"'<>]{10,}"), rf"\1{MASK}"),
    (re.compile(rf"(?i)(?<![a-z0-9])({_AWS_NAMES}){_AWS_VALUE}"), rf"\1={MASK}"),
    (re.compile(rf"(?i)(?<![a-z0-9])({_NAMES}){_VALUE}"), rf"\1={MASK}"),
    (
        re.compile(r"""(?i)\b(Authorization)["']?\s*:\s*["']?(?:(?:Bearer|Basic|Token)\s+)?[^\s"',]+"""),
        rf"\1: {MASK}",
    ),
    # A token contains a digit or a special character, or is long; other words are prose.
    (re.compile(r"\b((?i:Bearer))\s+(?=\S*[\d._~+/=-]\S|\w{16})[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?m)^([ \t]+at )\S.*\([^()\n]*:\d+\)[ \t]*$"), r"\1[REDACTED_PATH]"),
    (re.compile(r"\bG:\\[^\\\s\"'`:;,)\]}]+"), "~"),
)
_FRAME = late_pattern(r"[ \t]+at\s|(?:Error|TypeError|ReferenceError):")


def sanitise(text: str, home: str = "") -> str:
    """Return the text with secrets and the home directory masked."""
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home.rstrip('/'))}(?![\w.-])", "~", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _fold_trace(text)


def sanitise_all(value: Any, home: str, *, spare: Collection[str] = ()) -> Any:
    """Apply `sanitise` to every text in lists and objects, except the fields in `spare`."""
    if isinstance(value, str):
        return sanitise(value, home)
    if isinstance(value, list):
        return [sanitise_all(item, home, spare=spare) for item in value]
    if isinstance(value, dict):
        return {key: item if key in spare else sanitise_all(item, home, spare=spare) for key, item in value.items()}
    return value


def _fold_trace(text: str) -> str:
    if len(_FRAME.findall(text)) <= MAX_FRAMES:
        return text
    lines, frames = list[str](), 0
    for line in text.split("\n"):
        is_frame = _FRAME.match(line) is not None
        frames += is_frame
        if not is_frame or frames <= MAX_FRAMES:
            lines.append(line)
        elif frames == MAX_FRAMES + 1:
            lines.append(FOLDED)
    return "\n".join(lines)
