"""A scheduled job: its record and its JSON form.

Members, names and order are those of pi's subagent package; unknown members are preserved.
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
# No "-" or "_", because ids are command line arguments.
_ID_LETTERS: Final = string.ascii_letters + string.digits


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is started, when, and how the last run went. Times are ISO texts in UTC."""

    id: str
    name: str
    """Unique in the session; initially the description."""
    description: str = ""
    schedule: str
    """As in `Schedule.text`."""
    schedule_type: Kind = field(name="scheduleType")
    interval_ms: int | UnsetType = field(name="intervalMs", default=UNSET)
    subagent_type: str
    prompt: str
    model: str | UnsetType = UNSET
    """As requested; resolved when the job fires."""
    thinking: str | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    isolated: bool | UnsetType = UNSET
    isolation: str | UnsetType = UNSET
    max_tokens_total: int | UnsetType = UNSET
    max_cost: float | UnsetType = UNSET
    grant: Grant | UnsetType = field(name="retinueGrant", default=UNSET)
    """The rights of the agent that created the job; its runs never get more."""
    depth: int | UnsetType = field(name="retinueDepth", default=UNSET)
    """The depth of that agent; its runs are deeper."""
    enabled: bool | UnsetType = UNSET
    created_at: str | UnsetType = field(name="createdAt", default=UNSET)
    last_run: str | UnsetType = field(name="lastRun", default=UNSET)
    """When the last run ended; while one runs, the time it was due."""
    last_status: LastStatus | UnsetType = field(name="lastStatus", default=UNSET)
    next_run: str | UnsetType = field(name="nextRun", default=UNSET)
    run_count: int | UnsetType = field(name="runCount", default=UNSET)
    """Number of finished runs."""

    @property
    def is_enabled(self) -> bool:
        return self.enabled is True

    @property
    def is_running(self) -> bool:
        """Whether its last run is not recorded as ended."""
        return self.last_status == "running"

    @property
    def runs(self) -> int:
        return self.run_count or 0


_WIRE_NAMES: Final = dict(zip(Job.__struct_fields__, Job.__struct_encode_fields__, strict=True))


def create_job(
    schedule: Schedule, *, name: str, subagent_type: str, prompt: str, now_ms: int, job_id: str = "", **options: Any
) -> Job:
    """Create a job; `options` are the optional members, and None values are omitted."""
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
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


def parse_job(entry: object) -> Job:
    """Parse one entry of a file. Raises ConfigError that names the invalid member."""
    try:
        return msgspec.convert(_drop_nulls(entry), Job)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is no scheduled job: {error}") from None


def to_entry(job: Job, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the entry of a job; unknown members of `previous` are preserved."""
    given = ((wire, getattr(job, name)) for name, wire in _WIRE_NAMES.items())
    ours = {wire: msgspec.to_builtins(value) for wire, value in given if value is not UNSET}
    kept = {key: value for key, value in (previous or {}).items() if key not in _WIRE_NAMES.values()}
    return {**ours, **kept}


def _drop_nulls(entry: object) -> object:
    # Other programs may write a missing value as null.
    if not isinstance(entry, dict) or None not in entry.values():
        return entry
    return {key: value for key, value in entry.items() if value is not None}
