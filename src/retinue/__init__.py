"""Subagents for coding agents. Nothing happens on import: names are loaded when first used."""

TYPE_CHECKING = False  # as in typing, whose import would cost more than all the rest of `--help`
if TYPE_CHECKING:
    from typing import Any

    from retinue.app import Request, Retinue, SessionWish
    from retinue.core.run import Outcome, Reason, Status
    from retinue.engine.limits import Limits

__all__ = ["Limits", "Outcome", "Reason", "Request", "Retinue", "SessionWish", "Status"]

_HOMES = {
    "Limits": "retinue.engine.limits",
    "Outcome": "retinue.core.run",
    "Reason": "retinue.core.run",
    "Request": "retinue.app",
    "Retinue": "retinue.app",
    "SessionWish": "retinue.app",
    "Status": "retinue.core.run",
}


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
