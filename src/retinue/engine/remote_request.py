"""What is sent along with a run that works elsewhere, and where runs can work. Plain data."""

from dataclasses import dataclass, field

from msgspec import Struct

from retinue.core.definition import REMOTE as REMOTE
from retinue.core.definition import Definition
from retinue.core.definition import Runner as Runner
from retinue.engine.budget import Lease
from retinue.engine.model_choice import NamedModel
from retinue.engine.request import RunRequest
from retinue.tools.policy import Rights

HERE: tuple[Runner, ...] = ("inprocess", "durable")
"""Runners that work in this process."""


@dataclass(frozen=True, slots=True)
class RemoteRequest:
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
    named: NamedModel = field(default_factory=NamedModel)
    """The model that its request or its file names."""
    is_bare: bool = False
    """Whether only what the definition says is on its command line: callers of its surface rely on that."""


class Origin(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that was started by one on another machine: what has to be known to judge it."""

    run_id: str
    agent: str
    surface: str = "fleet"
    readonly: bool = False
    confined: bool = False
    """Its commands can change nothing, whatever they are."""
