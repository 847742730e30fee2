"""What travels: all a worker has to know of a run, and what is said to it there. Plain data, and never a secret."""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.messages import ThinkingLevel
from retinue.durable.cluster.database import pack_json, unpack_json
from retinue.engine.limits import TIMES, Limits

_WIRE = {re.sub("_(.)", lambda found: found[1].upper(), name): name for name in TIMES}
"""What the times of a run are called where they travel."""
MAX_QUEUES = 4
"""What lies deeper shares the last one."""


class Cover(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a session begins with when it is made for a run."""

    id: str = ""
    """Known where the run was sent from before its worker has one; empty for any."""
    parent: str = ""
    """The file of the session that it belongs to, where it was sent from."""
    name: str = ""
    labels: dict[str, dict[str, Any]] = {}
    """Entries of its own, by their kind."""
    cwd: str = ""
    """The folder that it is about at the first face, where that is another one than where the run was sent from."""
    file: str = ""
    """Where it will be kept at the first face; empty for nowhere."""


class Home(Struct, frozen=True, kw_only=True):
    """Where a run on a worker belongs: what its folder and its session are called at the first face."""

    run_id: str
    workspace: str
    cwd: str
    file: str

    @classmethod
    def of(cls, assignment: "Assignment", workspace: Path) -> "Home":
        """Of a run that works in this folder."""
        cover = assignment.cover
        cwd = cover.cwd or assignment.cwd
        return cls(run_id=assignment.run_id, workspace=str(workspace), cwd=cwd, file=cover.file)

    def translate(self, path: str) -> str:
        """A folder here under its name there."""
        is_below = path == self.workspace or path.startswith(f"{self.workspace}/")
        return f"{self.cwd}{path.removeprefix(self.workspace)}" if is_below and self.cwd else path


class Assignment(Struct, frozen=True, kw_only=True, rename="camel"):
    """One run for a worker, settled: the face has read the definition and decided the rights."""

    run_id: str
    attempt: int
    agent: str
    description: str
    depth: int
    task: str
    sections: tuple[tuple[str, str], ...]
    """Its prompt."""
    session: str = "session.jsonl"
    """The name of its session: an attempt that has another one than the last begins anew."""
    cwd: str = ""
    """The folder that its workspace is a copy of."""
    tools: tuple[str, ...]
    names: dict[str, str] = {}
    """What its model calls each of them, with its own name; empty where they are the same."""
    refusals: dict[str, str] = {}
    """What is answered to calls of tools that it could not be given."""
    cover: Cover = Cover()
    model: str
    """`provider/id`; the worker has its own key for it."""
    thinking: ThinkingLevel
    marks: dict[str, str]
    """How deep it is, whether it is read-only, how many turns it has: as a process of its own would be told."""
    trusted: bool
    """Whether whoever sent it trusts the project's files; the worker decides for itself whether that counts."""
    limits: Limits = Limits()
    """Of these the times alone travel: turns are among its marks, tokens and cost in its leases."""
    leases: tuple[str, ...] = ()
    """The budgets it draws on: its own and those above."""
    face: str = ""
    """Where to tell of it."""
    priority: int = 2
    """Lower ones are taken first; whoever waits for a run gives it 1."""
    asks: bool = False
    """Whether somebody is there who could be asked."""
    judged: dict[str, bool] = {}
    """What of it is judged at its face, and whether it waits for the answer; nothing for a user without rules."""
    tells_below: bool = False
    """Whether its face wants to know of the runs it starts; one of an earlier version would not understand it."""
    judged_below: bool = False
    """Whether its face has anything to say about the runs it starts."""
    finalises: bool = False
    """Whether it gives its answer by a call."""
    parcel: dict[str, Any] = {}
    """The workspace; empty for none."""
    digest: str = ""
    """Of the bundle that belongs to it."""

    @property
    def id(self) -> str:
        """Of this attempt; what is recorded belongs to the run, whichever attempt it was."""
        return f"{self.run_id}.{self.attempt}"

    @property
    def queue(self) -> str:
        """Runs that wait for others must not take their places: each depth has places of its own."""
        return f"retinue-{min(self.depth, MAX_QUEUES)}"


def pack_assignment(assignment: Assignment) -> str:
    """A run as workers of all versions read it: its times are fields like all others."""
    packed: dict[str, Any] = msgspec.to_builtins(assignment)
    limits = packed.pop("limits")
    return pack_json(packed | {wire: limits[name] for wire, name in _WIRE.items()})


def unpack_assignment(text: str) -> Assignment:
    """The run again. Raises msgspec.DecodeError for what was never one."""
    packed = unpack_json(text, dict[str, Any])
    limits = {name: packed.pop(wire) for wire, name in _WIRE.items() if wire in packed}
    try:
        return msgspec.convert(packed | {"limits": limits}, type=Assignment)
    except UsageError as error:
        raise msgspec.ValidationError(str(error)) from error


WordKind = Literal["steer", "stop", "answer", "ruling", "restrict", "judge", "below"]
CHANNEL = "retinue_words"
"""Where workers hear that something was said."""


class RunMessage(Struct, frozen=True):
    """Something said to a run on its worker."""

    kind: WordKind
    data: dict[str, Any] = {}
