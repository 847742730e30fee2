"""What is sent along with a run that works elsewhere, and where runs can work. Plain data."""

from dataclasses import dataclass

from msgspec import Struct

from retinue.core.definition import REMOTE as REMOTE
from retinue.core.definition import Definition
from retinue.core.definition import Runner as Runner
from retinue.engine.budget import Lease
from retinue.engine.request import RunRequest
from retinue.tools.policy import Rights

HERE = ("inprocess", "durable")
"""Runners that work in this process."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What has to be known of a run, beside its setup, to let it work elsewhere."""

    runner: Runner
    definition: Definition
    request: RunRequest
    rights: Rights
    session_file: str
    """Where its session is kept; empty for nowhere."""
    lease: Lease
    attempt: int = 1
    branch: str = ""
    """Where an earlier attempt has left its changes."""
    parent_session: str = ""
    """The file of the session of whoever asked for it; empty where there is none."""


class Origin(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that was started by one on another machine: what has to be known to judge it."""

    run_id: str
    agent: str
    surface: str = "fleet"
    readonly: bool = False
    confined: bool = False
    """Its commands can change nothing, whatever they are."""
