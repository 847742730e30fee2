"""Looks for keys of this process in what is about to be sent. Pure; must not know who sends it."""

import base64
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_plus

from retinue.core.redaction import Redactor, is_secret_name, is_telling
from retinue.tools.outbound.failure import RequestFailed

_SHAPES = Redactor(patterns=True)


def check_secrets(text: str, environment: Mapping[str, str], *, is_given: bool = False) -> None:
    """Raises RequestFailed when a text holds a key of the environment, or what looks like one; never shows it.

    What a server has given us may hold keys of its own: signed addresses do.
    """
    shown = (text, unquote_plus(text), unquote_plus(unquote_plus(text)))
    for name, value in environment.items():
        is_key = is_secret_name(name) and is_telling(value.strip())
        if is_key and any(form in each for form in _spell(value.strip()) for each in shown):
            raise RequestFailed("secret", f"the request holds the value of {name}; nothing was sent")
    if not is_given and any(_SHAPES.redact(each) != each for each in shown):
        raise RequestFailed("secret", "the request holds what looks like a key or a token; nothing was sent")


def _spell(value: str) -> Iterable[str]:
    data = value.encode("utf-8", "replace")
    packed = base64.b64encode(data).decode("ascii").rstrip("=")
    return value, packed, packed.replace("+", "-").replace("/", "_"), data.hex()
