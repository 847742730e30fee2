"""Looks for keys of this process in what is about to be sent. Pure; must not know who sends it."""

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_plus

from retinue.tools.outbound.failure import RequestFailed

_NAMES = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:$|_)|AUTH$", re.IGNORECASE)
_LEAST = 8
_SHAPES = (
    ("an API key", re.compile(r"\bsk-[A-Za-z0-9_-]{24,}")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a Slack token", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")),
)


def check_secrets(text: str, environment: Mapping[str, str]) -> None:
    """Raises RequestFailed when a text holds a key of the environment, or what looks like one; never shows it."""
    shown = [text, unquote_plus(text), unquote_plus(unquote_plus(text))]
    for name, value in environment.items():
        is_key = len(value) >= _LEAST and _NAMES.search(name) and not value.startswith("/")
        if is_key and any(form in each for form in _spell(value) for each in shown):
            raise _refuse(f"the value of {name}")
    for what, shape in _SHAPES:
        if any(shape.search(each) for each in shown):
            raise _refuse(f"what looks like {what}")


def _spell(value: str) -> Iterable[str]:
    data = value.encode("utf-8", "replace")
    packed = base64.b64encode(data).decode("ascii").rstrip("=")
    return value, packed, packed.replace("+", "-").replace("/", "_"), data.hex()


def _refuse(what: str) -> RequestFailed:
    return RequestFailed("secret", f"the request holds {what}; nothing was sent")
