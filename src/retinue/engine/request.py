"""What a surface asks the Manager for: plain data, so that it survives a crash and can travel."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.run import Grant, Join
from retinue.engine.limits import ASKED, Limits


class RunRequest(Struct, frozen=True, kw_only=True):
    """One run to be, settled: what the call said, what the definition locks, what the settings add."""

    agent: str
    task: str
    description: str
    surface: str
    preface: str = ""
    """Put before the task, such as the parent's conversation; the task alone is what people see."""
    model: str | None = None
    """`provider/id`; None takes the parent's."""
    is_model_chosen: bool = False
    """Whether a person named its provider, which then may be another one than the main model's."""
    thinking: str | None = None
    isolated: bool = False
    isolation: Literal["worktree"] | None = None
    cwd: str | None = None
    """Absolute; None takes the parent's."""
    allow_write: bool | None = None
    """False leaves only read-only tools; None lets the definition decide."""
    join: Join = "async"
    is_background: bool = True
    skips_queue: bool = False
    call_id: str = ""
    occasion: str = ""
    """What starts it, where that must start one run only, whoever asks again after a crash."""
    session_file: str = ""
    """Where its session is kept; empty for the usual place beside its parent's."""
    session_dir: str = ""
    """The folder of its session, as `<run id>.jsonl`; the Manager makes a `session_file` of it."""
    keeps_session: bool = True
    """False leaves no session behind: the run can be resumed as long as this process lives."""
    transcript_dir: str = ""
    """Where a transcript for people is kept, as `agent-<run id>.jsonl`; empty for none."""
    limits: Limits = Limits()
    """What it may use; of these only `ASKED` are stored."""
    invocation: dict[str, Any] = {}
    grant: Grant | None = None
    """The most it may use beside what its parent may: somebody else asked for it, at another time."""
    extra_depth: int = 0
    """How much deeper it counts than its parent's other runs."""


def store_request(request: RunRequest) -> dict[str, Any]:
    """A request as it is stored: its limits are fields like all others, in the order they have always had."""
    stored: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(request).items():
        stored |= {each: value[each] for each in ASKED} if name == "limits" else {name: value}
        if name == "thinking":
            stored["max_turns"] = request.limits.max_turns
    return stored


def read_request(stored: Mapping[str, Any]) -> RunRequest:
    """A stored request again. Raises ValidationError."""
    limits, rest = split_limits(stored)
    try:
        return msgspec.convert({**rest, "limits": limits}, type=RunRequest)
    except UsageError as error:
        raise msgspec.ValidationError(str(error)) from error


def split_limits(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the fields of a stored request those that are limits, and the rest."""
    limits = {name: value for name, value in fields.items() if name in ASKED}
    return limits, {name: value for name, value in fields.items() if name not in limits}
