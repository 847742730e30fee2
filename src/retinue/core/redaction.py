"""Remove secrets from text: first known values, then, optionally, patterns of keys. Pure.

This file must not know where secrets come from or where text goes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from retinue.core.pattern import late_pattern

MARK: Final = "[redacted]"
SHORTEST: Final = 8
_LONG: Final = 20
_HELD: Final = 64 * 1024
"""Bytes of an unfinished line that a sieve holds back."""
_LONGEST: Final = 4096
"""Bytes of the longest secret that is found where a long line is cut."""
_BEGIN, _END = b"-----BEGIN ", b"-----END "
_PASSWORD = late_pattern(r"://[^\s:/@]*:([^\s/@]{3,200})@")
_NAME = late_pattern(
    r"(?:^|_)(?:API_?KEYS?|(?:ACCESS|SECRET|PRIVATE|SIGNING|ENCRYPTION|MASTER|SERVICE|AUTH|BEARER)_KEY|KEY|TOKENS?|"
    r"SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|BEARER)(?:_|$)|^PGPASSWORD$|_DSN$",
    re.IGNORECASE,
)
# Names that match the words above but hold no secret.
_HARMLESS = late_pattern(
    r"^(?:KEYBOARD|MAX_|MIN_|NUM_)|_(?:FILE|PATH|DIR|LIMIT|COUNT|TTL|URL|ID|LAYOUT)$", re.IGNORECASE
)
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,20000}?-----END [A-Z ]*PRIVATE KEY-----",
        r"\bsk-[A-Za-z0-9_-]{16,}",
        r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bglpat-[A-Za-z0-9_-]{16,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\bAIza[A-Za-z0-9_-]{30,}",
        r"\bhf_[A-Za-z0-9]{20,}",
        r"\bnpm_[A-Za-z0-9]{30,}",
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}",
        r"(?i:(?<=\bbearer )[A-Za-z0-9._~+/-]{16,}=*)",
        r"(?i:(?<=://)[^\s:/@]{1,80}:[^\s/@]{3,200}(?=@))",
    )
)


class Redactor:
    """Replaces known secrets in text."""

    def __init__(self, secrets: Iterable[str] = (), *, patterns: bool = False) -> None:
        """With `patterns`, text that looks like a secret is also replaced."""
        self.patterns = patterns
        self._known: tuple[str, ...] = ()
        """Longest first: one secret may begin with another."""
        self._find: re.Pattern[str] | None = None
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Add secrets. Values that are too common to be secret are ignored, since they would match everywhere."""
        new = {text for secret in secrets if is_telling(text := secret.strip())}.difference(self._known)
        if new:
            self._known = tuple(sorted((*self._known, *new), key=len, reverse=True))
            self._find = re.compile("|".join(map(re.escape, self._known)))

    def redact(self, text: str) -> str:
        """Replace each secret with a mark."""
        # Checking each one is several times faster than the joint pattern, and usually there is no match.
        if self._find is not None and any(word in text for word in self._known):
            text = self._find.sub(MARK, text)
        for pattern in _PATTERNS if self.patterns else ():
            text = pattern.sub(MARK, text)
        return text

    def redact_data(self, value: Any) -> Any:
        """Redact every string in plain data; returns the same value if there is nothing to redact."""
        if self._find is None and not self.patterns:
            return value
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.redact_data, value)) if type(value) in (list, tuple) else value
        if type(value) is dict:
            return {name: self.redact_data(item) for name, item in value.items()}
        return value


class StreamRedactor:
    """Removes secrets from a byte stream. The possible start of a secret is held back until its line is complete."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add a piece; returns what can be passed on."""
        held = self._held + data
        cut = _find_cut(held)
        self._held = held[cut:]
        return self._clean(held[:cut])

    def finish(self) -> bytes:
        """At the end of the stream: what was held back, redacted."""
        return self._clean(self.give_back())

    def give_back(self) -> bytes:
        """What was held back, not redacted."""
        held, self._held = self._held, b""
        return held

    def _clean(self, data: bytes) -> bytes:
        # surrogateescape keeps bytes that are not UTF-8.
        text = data.decode("utf-8", "surrogateescape")
        clean = self._redact(text)
        return data if clean == text else clean.encode("utf-8", "surrogateescape")


def _find_cut(data: bytes) -> int:
    """Where to cut a stream without splitting a secret: secrets contain no whitespace, except PEM keys."""
    cut = data.rfind(b"\n") + 1
    if not cut and len(data) > _HELD:
        cut = max(data.rfind(b" ") + 1, len(data) - _LONGEST)
    begun = data.rfind(_BEGIN, 0, cut)
    is_open = begun >= 0 and data.find(_END, begun, cut) < 0 and len(data) - begun < _HELD
    return begun if is_open else cut


def is_telling(text: str) -> bool:
    """Whether a text is unusual enough that it can only be a secret."""
    if len(text) < SHORTEST or any(letter.isspace() for letter in text) or text.startswith(("/", "~", ".")):
        return False
    return len(text) >= _LONG or any(letter.isdigit() for letter in text)


def is_secret_name(name: str) -> bool:
    """Whether a variable or header with this name probably holds a secret."""
    plain = name.replace("-", "_")
    return _NAME.search(plain) is not None and _HARMLESS.search(plain) is None


def collect_secrets(environment: Mapping[str, str]) -> list[str]:
    """The secrets in an environment or another mapping, including passwords in URLs."""
    named = [value for name, value in environment.items() if value and is_secret_name(name)]
    return [*named, *(word for value in environment.values() for word in _PASSWORD.findall(value))]
