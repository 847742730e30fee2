"""A scheduled job: its record and its JSON form.

Members, names and order are those of pi's subagent package; unknown members are preserved.
"""

import secrets
import string
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from retinue.core.errors import ConfigError
from retinue.core.run import Grant
from retinue.features.schedule.parse import Kind, Schedule
from retinue.features.schedule.zone import to_iso

_ID_LENGTH: Final = 10
# No "-" or "_", because ids are command line arguments.
_ID_LETTERS: Final = string.ascii_letters + string.digits


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is started, when, and how the last run went. Times are ISO texts in UTC."""

    id: str
    name: str
    """Unique in the session; initially the description."""
    description: str | None = None
    schedule: str
    """As in `Schedule.text`."""
    schedule_type: Kind = field(name="scheduleType")
    interval_ms: int | None = field(name="intervalMs", default=None)
    subagent_type: str
    prompt: str
    model: str | None = None
    """As requested; resolved when the job fires."""
    thinking: str | None = None
    max_turns: int | None = None
    isolated: bool | None = None
    isolation: str | None = None
    output_schema: dict[str, Any] | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    grant: Grant | None = field(name="retinueGrant", default=None)
    """The rights of the agent that created the job; its runs never get more."""
    depth: int | None = field(name="retinueDepth", default=None)
    """The depth of that agent; its runs are deeper."""
    enabled: bool | None = None
    created_at: str | None = field(name="createdAt", default=None)
    last_run: str | None = field(name="lastRun", default=None)
    """When the last run ended; while one runs, the time it was due."""
    last_status: Literal["success", "error", "running"] | None = field(name="lastStatus", default=None)
    next_run: str | None = field(name="nextRun", default=None)
    run_count: int | None = field(name="runCount", default=None)
    """Number of finished runs."""

    @property
    def runs(self) -> int:
        return self.run_count or 0


def create_job(
    schedule: Schedule, *, name: str, subagent_type: str, prompt: str, now_ms: int, job_id: str = "", **options: Any
) -> Job:
    """Create a job; `options` are the optional members."""
    return Job(
        id=job_id or make_job_id(),
        name=name,
        description=name,
        schedule=schedule.text,
        schedule_type=schedule.kind,
        interval_ms=schedule.interval_ms,
        subagent_type=subagent_type,
        prompt=prompt,
        enabled=True,
        created_at=to_iso(now_ms),
        next_run=to_iso(schedule.first_ms),
        run_count=0,
        **options,
    )


def make_job_id() -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


def parse_job(entry: object) -> Job:
    """Parse one entry of a file. Raises ConfigError that names the invalid member."""
    try:
        return msgspec.convert(entry, Job)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is not a scheduled job: {error}") from None


def to_entry(job: Job, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the entry of a job; unknown members of `previous` are preserved."""
    kept = {key: value for key, value in (previous or {}).items() if key not in Job.__struct_encode_fields__}
    return {**msgspec.to_builtins(job), **kept}
