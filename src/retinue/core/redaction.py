"""Secrets taken out of text: first the very values that are known, then, if wanted, what looks like one. Pure.

Knows nothing of where secrets come from or where text goes to.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

MARK: Final = "[redacted]"
SHORTEST: Final = 8
_LONG: Final = 20
_HELD: Final = 64 * 1024
"""Bytes of a line without an end that a sieve waits for."""
_LONGEST: Final = 4096
"""Of a secret that is found where a line is cut for its length."""
_BEGIN, _END = b"-----BEGIN ", b"-----END "
_PASSWORD = re.compile(r"://[^\s:/@]*:([^\s/@]{3,200})@")
_NAME = re.compile(
    r"(?:^|_)(?:API_?KEYS?|(?:ACCESS|SECRET|PRIVATE|SIGNING|ENCRYPTION|MASTER|SERVICE|AUTH|BEARER)_KEY|KEY|TOKENS?|"
    r"SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|BEARER)(?:_|$)|^PGPASSWORD$|_DSN$",
    re.IGNORECASE,
)
# Names that the words above are in, and that hold no secret.
_HARMLESS = re.compile(r"^(?:KEYBOARD|MAX_|MIN_|NUM_)|_(?:FILE|PATH|DIR|LIMIT|COUNT|TTL|URL|ID|LAYOUT)$", re.IGNORECASE)
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
    """Knows some secrets, and takes them out of text."""

    def __init__(self, secrets: Iterable[str] = (), *, patterns: bool = False) -> None:
        """With `patterns` it also takes out what looks like a secret."""
        self.patterns = patterns
        self._known: tuple[str, ...] = ()
        """The longest first: one may begin with another."""
        self._find: re.Pattern[str] | None = None
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Know more of them; what is too plain to be one is left alone, since it would be found everywhere."""
        new = {text for secret in secrets if is_telling(text := secret.strip())}.difference(self._known)
        if new:
            self._known = tuple(sorted((*self._known, *new), key=len, reverse=True))
            self._find = re.compile("|".join(map(re.escape, self._known)))

    def redact(self, text: str) -> str:
        """The text, with a mark in the place of each secret."""
        # To look for each is several times faster than to look for all at once, and mostly there is none.
        if self._find is not None and any(word in text for word in self._known):
            text = self._find.sub(MARK, text)
        for pattern in _PATTERNS if self.patterns else ():
            text = pattern.sub(MARK, text)
        return text

    def redact_data(self, value: Any) -> Any:
        """The same for every text in plain data; the value itself where there is none."""
        if self._find is None and not self.patterns:
            return value
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.redact_data, value)) if type(value) in (list, tuple) else value
        if type(value) is dict:
            return {name: self.redact_data(item) for name, item in value.items()}
        return value


class Sieve:
    """Takes secrets out of a stream of bytes. What may be the beginning of one waits for the rest of its line."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on after this piece."""
        held = self._held + data
        cut = _find_cut(held)
        self._held = held[cut:]
        return self._clean(held[:cut])

    def finish(self) -> bytes:
        """What was held back: nothing more comes."""
        return self._clean(self.give_back())

    def give_back(self) -> bytes:
        """What was held back, as it came."""
        held, self._held = self._held, b""
        return held

    def _clean(self, data: bytes) -> bytes:
        # No byte is lost where it is no text.
        text = data.decode("utf-8", "surrogateescape")
        clean = self._redact(text)
        return data if clean == text else clean.encode("utf-8", "surrogateescape")


def _find_cut(data: bytes) -> int:
    """Where a stream can be cut so that no secret is in two pieces: none has a blank in it, but for whole keys."""
    cut = data.rfind(b"\n") + 1
    if not cut and len(data) > _HELD:
        cut = max(data.rfind(b" ") + 1, len(data) - _LONGEST)
    begun = data.rfind(_BEGIN, 0, cut)
    is_open = begun >= 0 and data.find(_END, begun, cut) < 0 and len(data) - begun < _HELD
    return begun if is_open else cut


def is_telling(text: str) -> bool:
    """Whether a text is odd enough to be nothing but a secret."""
    if len(text) < SHORTEST or any(letter.isspace() for letter in text) or text.startswith(("/", "~", ".")):
        return False
    return len(text) >= _LONG or any(letter.isdigit() for letter in text)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name, or a header, is likely to hold a secret."""
    plain = name.replace("-", "_")
    return _NAME.search(plain) is not None and _HARMLESS.search(plain) is None


def collect_secrets(environment: Mapping[str, str]) -> list[str]:
    """The secrets in an environment, or in whatever has names and values: also the passwords in addresses."""
    named = [value for name, value in environment.items() if value and is_secret_name(name)]
    return [*named, *(word for value in environment.values() for word in _PASSWORD.findall(value))]
