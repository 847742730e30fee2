"""Test helpers: a mock model server, a fake clock, an event collector, git repositories, and a runner for the command.

Shipped code must not import this package. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.models.scripted import ScriptedModel, load_script, parse_script
    from retinue.testing.clock import EventCollector, FakeClock
    from retinue.testing.process import CliResult, fresh_home, make_repo, open_cli, run_cli
    from retinue.testing.server import APIS, MockServer

__all__ = [
    "APIS",
    "CliResult",
    "EventCollector",
    "FakeClock",
    "MockServer",
    "ScriptedModel",
    "fresh_home",
    "load_script",
    "make_repo",
    "open_cli",
    "parse_script",
    "run_cli",
]

_HOMES = {
    "retinue.models.scripted": ("ScriptedModel", "load_script", "parse_script"),
    "retinue.testing.clock": ("EventCollector", "FakeClock"),
    "retinue.testing.process": ("CliResult", "fresh_home", "make_repo", "open_cli", "run_cli"),
    "retinue.testing.server": ("APIS", "MockServer"),
}


def __getattr__(name: str) -> Any:
    # Lazy, because `python -m retinue.testing.server` must not find its module already loaded.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
