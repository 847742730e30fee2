"""The composition root: reads what the user has configured, builds the parts and hands them to each other.

It decides nothing: what a file means is in `settings`, which model a name means is in `models`, how a run goes is in
`engine`. Everything a face does goes through `Retinue`. Names are loaded when first used: a list of models needs no
engine.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.app.handle import Handle
    from retinue.app.reports import (
        Portrait,
        Roster,
        cancel_schedule,
        list_models,
        list_schedules,
        list_sessions,
        open_approval,
        open_folder,
        open_roster,
        refresh_models,
        run_checkup,
    )
    from retinue.app.request import Request, SessionWish
    from retinue.app.retinue import Retinue

__all__ = [
    "Handle",
    "Portrait",
    "Request",
    "Retinue",
    "Roster",
    "SessionWish",
    "cancel_schedule",
    "list_models",
    "list_schedules",
    "list_sessions",
    "open_approval",
    "open_folder",
    "open_roster",
    "refresh_models",
    "run_checkup",
]

_HOMES = {
    "Handle": "handle",
    "Request": "request",
    "Retinue": "retinue",
    "SessionWish": "request",
    "cancel_schedule": "reports",
    "list_models": "reports",
    "refresh_models": "reports",
    "list_schedules": "reports",
    "list_sessions": "reports",
    "open_approval": "reports",
    "open_folder": "reports",
    "open_roster": "reports",
    "run_checkup": "reports",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'retinue.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"retinue.app.{_HOMES[name]}"), name)
