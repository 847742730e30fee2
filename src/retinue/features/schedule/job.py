"""One scheduled agent as its file holds it, and the way between the record and the JSON.

The members are those of pi's subagent package, under their names and in their order; members it does not know stay.
"""

import secrets
import string
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from retinue.core.errors import ConfigError
from retinue.core.run import Grant
from retinue.features.schedule.parse import Kind, Schedule
from retinue.features.schedule.zone import to_iso

LastStatus = Literal["success", "error", "running"]

_ID_LENGTH: Final = 10
# No "-" and no "_": an id is an argument on command lines.
_ID_LETTERS: Final = string.ascii_letters + string.digits


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is started, when, and how the last time went. Instants are ISO texts in UTC."""

    id: str
    name: str
    """Tells the jobs of a session apart; the description it was made with."""
    description: str = ""
    schedule: str
    """As `Schedule.text`."""
    schedule_type: Kind = field(name="scheduleType")
    interval_ms: int | UnsetType = field(name="intervalMs", default=UNSET)
    subagent_type: str
    prompt: str
    model: str | UnsetType = UNSET
    """As it was asked for; resolved when the job fires."""
    thinking: str | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    isolated: bool | UnsetType = UNSET
    isolation: str | UnsetType = UNSET
    max_tokens_total: int | UnsetType = UNSET
    max_cost: float | UnsetType = UNSET
    grant: Grant | UnsetType = field(name="retinueGrant", default=UNSET)
    """What the agent that made it could use: no run of it gets more."""
    depth: int | UnsetType = field(name="retinueDepth", default=UNSET)
    """How deep that agent was: its runs count as deeper still."""
    enabled: bool | UnsetType = UNSET
    created_at: str | UnsetType = field(name="createdAt", default=UNSET)
    last_run: str | UnsetType = field(name="lastRun", default=UNSET)
    """When the last run ended; while one runs, the time it was due."""
    last_status: LastStatus | UnsetType = field(name="lastStatus", default=UNSET)
    next_run: str | UnsetType = field(name="nextRun", default=UNSET)
    run_count: int | UnsetType = field(name="runCount", default=UNSET)
    """Runs that have ended."""

    @property
    def is_enabled(self) -> bool:
        """Whether it will fire again."""
        return self.enabled is True

    @property
    def is_running(self) -> bool:
        """Whether its last fire has not been settled."""
        return self.last_status == "running"

    @property
    def runs(self) -> int:
        """How many of its runs have ended."""
        return self.run_count or 0


_WIRE_NAMES: Final = dict(zip(Job.__struct_fields__, Job.__struct_encode_fields__, strict=True))


def create_job(
    schedule: Schedule, *, name: str, subagent_type: str, prompt: str, now_ms: int, job_id: str = "", **options: Any
) -> Job:
    """A job that has not fired; `options` are the optional members, those that are None are left out."""
    given = {key: value for key, value in options.items() if value is not None}
    return Job(
        id=job_id or make_job_id(),
        name=name,
        description=name,
        schedule=schedule.text,
        schedule_type=schedule.kind,
        interval_ms=UNSET if schedule.interval_ms is None else schedule.interval_ms,
        subagent_type=subagent_type,
        prompt=prompt,
        enabled=True,
        created_at=to_iso(now_ms),
        next_run=to_iso(schedule.first_ms),
        run_count=0,
        **given,
    )


def make_job_id() -> str:
    """Ten letters and digits."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


def parse_job(entry: object) -> Job:
    """The job in one entry of a file; raises ConfigError naming the member that is wrong."""
    try:
        return msgspec.convert(_drop_nulls(entry), Job)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is no scheduled job: {error}") from None


def to_entry(job: Job, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    """The entry of a job; members of the previous one that are not ours stay."""
    given = ((wire, getattr(job, name)) for name, wire in _WIRE_NAMES.items())
    ours = {wire: msgspec.to_builtins(value) for wire, value in given if value is not UNSET}
    kept = {key: value for key, value in (previous or {}).items() if key not in _WIRE_NAMES.values()}
    return {**ours, **kept}


def _drop_nulls(entry: object) -> object:
    # A member without a value may be written as null by others.
    if not isinstance(entry, dict) or None not in entry.values():
        return entry
    return {key: value for key, value in entry.items() if value is not None}
