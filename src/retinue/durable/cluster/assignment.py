"""Assignment: everything a worker must know of a run, and the messages to it. Plain data without secrets."""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.messages import ThinkingLevel
from retinue.durable.cluster.database import pack_json, unpack_json
from retinue.engine.limits import TIMES, Limits
from retinue.features.verification import VerifyOptions

_WIRE = {re.sub("_(.)", lambda found: found[1].upper(), name): name for name in TIMES}
"""Wire names of a run's time limits."""
MAX_QUEUES = 4
"""Deeper runs share the last queue."""


class SessionContent(Struct, frozen=True, kw_only=True, rename="camel"):
    """The initial content of a run's session."""

    id: str = ""
    """Chosen by the sender; empty for any."""
    parent: str = ""
    """The parent's session file on the sender."""
    name: str = ""
    labels: dict[str, dict[str, Any]] = {}
    """Custom entries by type."""
    cwd: str = ""
    """The original folder at the first front end, if it differs from the sender's."""
    file: str = ""
    """Session file at the first front end; empty for none."""


class SenderPlaces(Struct, frozen=True, kw_only=True):
    """Original places of a run on a worker: its folder and session file at the first front end."""

    run_id: str
    workspace: str
    cwd: str
    file: str

    @classmethod
    def of(cls, assignment: "Assignment", workspace: Path) -> "SenderPlaces":
        cover = assignment.cover
        cwd = cover.cwd or assignment.cwd
        return cls(run_id=assignment.run_id, workspace=str(workspace), cwd=cwd, file=cover.file)

    def translate(self, path: str) -> str:
        """Translate a folder of this machine to its original path."""
        is_below = path == self.workspace or path.startswith(f"{self.workspace}/")
        return f"{self.cwd}{path.removeprefix(self.workspace)}" if is_below and self.cwd else path


class Assignment(Struct, frozen=True, kw_only=True, rename="camel"):
    """One run for a worker; the front end has already read the definition and decided the rights."""

    run_id: str
    attempt: int
    agent: str
    description: str
    depth: int
    task: str
    sections: tuple[tuple[str, str], ...]
    """Its system prompt."""
    session: str = "session.jsonl"
    """The name of its session; an attempt with another name starts over."""
    cwd: str = ""
    """The folder that the workspace is a copy of."""
    tools: tuple[str, ...]
    names: dict[str, str] = {}
    """The model's name for each tool → the tool's own name; empty if they are equal."""
    refusals: dict[str, str] = {}
    """Answers to calls of tools that could not be given."""
    cover: SessionContent = SessionContent()
    model: str
    """`provider/id`; the worker uses its own key."""
    thinking: ThinkingLevel
    marks: dict[str, str]
    """Environment variables as for a child process: depth, read-only, turns."""
    trusted: bool
    """Whether the sender trusts the project's files; the worker decides whether to rely on it."""
    limits: Limits = Limits()
    """Only times are sent here: turns are in `marks`, tokens and cost in `leases`."""
    leases: tuple[str, ...] = ()
    """The budgets it draws on: its own and its ancestors'."""
    face: str = ""
    """The channel of the front end."""
    priority: int = 2
    """Lower values run first; 1 if the caller waits."""
    asks: bool = False
    """Whether a user could be asked."""
    judged: dict[str, bool] = {}
    """What needs approval at the front end, and whether the run waits for it; empty without rules."""
    tells_below: bool = False
    """Whether the front end supports and wants events of children."""
    judged_below: bool = False
    """Whether the front end has guards for children."""
    finalises: bool = False
    """Whether the run gives its answer by a tool call."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema that its result must match."""
    verify: VerifyOptions = VerifyOptions()
    """The commands that verify its result; those of the sender's files were approved there."""
    parcel: dict[str, Any] = {}
    """The workspace; empty for none."""
    digest: str = ""
    """Hash of the workspace bundle."""

    @property
    def id(self) -> str:
        """The id of this attempt; records belong to the run, not to an attempt."""
        return f"{self.run_id}.{self.attempt}"

    @property
    def queue(self) -> str:
        """One queue per depth, so that runs waiting for children cannot take the children's places."""
        return f"retinue-{min(self.depth, MAX_QUEUES)}"


def pack_assignment(assignment: Assignment) -> str:
    """Encode an assignment for workers of all versions: times are top-level fields."""
    packed: dict[str, Any] = msgspec.to_builtins(assignment)
    limits = packed.pop("limits")
    return pack_json(packed | {wire: limits[name] for wire, name in _WIRE.items()})


def unpack_assignment(text: str) -> Assignment:
    """Decode an assignment. Raises msgspec.DecodeError."""
    packed = unpack_json(text, dict[str, Any])
    limits = {name: packed.pop(wire) for wire, name in _WIRE.items() if wire in packed}
    try:
        return msgspec.convert(packed | {"limits": limits}, type=Assignment)
    except UsageError as error:
        raise msgspec.ValidationError(str(error)) from error


WordKind = Literal["steer", "stop", "answer", "ruling", "restrict", "judge", "below"]
CHANNEL = "retinue_words"
"""Notification channel that tells workers of new messages."""


class RunMessage(Struct, frozen=True):
    kind: WordKind
    data: dict[str, Any] = {}
