"""The composition root: reads the configuration, builds the parts and connects them.

It decides nothing: `settings` interprets files, `models` resolves model names, `engine` runs agents. Front ends use
only `Retinue`. Names are imported on first use: a list of models needs no engine.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.app.merges import land
    from retinue.app.retinue import Retinue
    from retinue.core.diagnostics import Item
    from retinue.settings.decisions import DecidedFolder
    from retinue.settings.doctor_report import DoctorReport
    from retinue.settings.entry_approval import EntryApproval
    from retinue.settings.request import Request, SessionWish
    from retinue.settings.stored_keys import StoredKeys
    from retinue.settings.user_state import UserState
    from retinue.tools.file_changes import PathLocks
    from retinue.tools.files.editor import EditedFileTool
    from retinue.tools.todo import TodoTool
    from retinue.views.overview import (
        AgentDetails,
        Roster,
        cancel_schedule,
        list_models,
        list_schedules,
        list_sessions,
        open_roster,
        refresh_models,
    )
    from retinue.views.runs import Handle

__all__ = [
    "AgentDetails",
    "DecidedFolder",
    "EditedFileTool",
    "EntryApproval",
    "Handle",
    "PathLocks",
    "Request",
    "Retinue",
    "Roster",
    "SessionWish",
    "StoredKeys",
    "TodoTool",
    "UserState",
    "cancel_schedule",
    "land",
    "list_models",
    "list_schedules",
    "list_sessions",
    "open_roster",
    "refresh_models",
    "run_checkup",
]

_HOMES = {
    "DecidedFolder": "settings.decisions",
    "EditedFileTool": "tools.files.editor",
    "EntryApproval": "settings.entry_approval",
    "PathLocks": "tools.file_changes",
    "TodoTool": "tools.todo",
    "StoredKeys": "settings.stored_keys",
    "UserState": "settings.user_state",
    "Handle": "views.runs",
    "Request": "settings.request",
    "Retinue": "app.retinue",
    "SessionWish": "settings.request",
    "cancel_schedule": "views.overview",
    "land": "app.merges",
    "list_models": "views.overview",
    "refresh_models": "views.overview",
    "list_schedules": "views.overview",
    "list_sessions": "views.overview",
    "open_roster": "views.overview",
}


def run_checkup(request: "Request") -> "DoctorReport":
    """Check the whole configuration, including the database in which runs are recorded."""
    from retinue.app.remote import check_remote
    from retinue.views.overview import run_checkup as check

    return check(request, lambda: (*_check_record(request.approve), *check_remote(os.environ)))


def _check_record(approve: bool | None) -> "list[Item]":
    from functools import partial

    from retinue.core.errors import RetinueError
    from retinue.durable.local.backend import FILE
    from retinue.durable.local.check import check_record
    from retinue.settings.doctor_report import try_writing, wants_runner
    from retinue.settings.paths import find_paths

    try:
        paths = find_paths(".", os.environ)
        is_wanted = partial(wants_runner, "durable", paths, os.environ, approve=approve)
        return check_record(paths.own_dir / FILE, try_writing, is_wanted=is_wanted)
    except RetinueError:
        return []  # reported by other checks


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'retinue.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"retinue.{_HOMES[name]}"), name)
