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
    from retinue.app.retinue import Retinue
    from retinue.settings.request import Request, SessionWish

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
    "Handle": "app.handle",
    "Request": "settings.request",
    "Retinue": "app.retinue",
    "SessionWish": "settings.request",
    "cancel_schedule": "app.reports",
    "list_models": "app.reports",
    "refresh_models": "app.reports",
    "list_schedules": "app.reports",
    "list_sessions": "app.reports",
    "open_approval": "app.reports",
    "open_folder": "app.reports",
    "open_roster": "app.reports",
    "run_checkup": "app.reports",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'retinue.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"retinue.{_HOMES[name]}"), name)
