"""RunRequest: what a surface asks the Manager for. Plain data: survives a crash, can be sent to another machine."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.definition import ContextMode
from retinue.core.errors import UsageError
from retinue.core.run import Grant, Join
from retinue.engine.limits import ASKED, Limits


class RunRequest(Struct, frozen=True, kw_only=True):
    """One requested run: arguments of the call, values fixed by the definition, defaults from the settings."""

    agent: str
    task: str
    description: str
    surface: str
    preface: str = ""
    """Put before the task, such as the parent's conversation; not shown to people."""
    context: ContextMode = "none"
    model: str | None = None
    """`provider/id`; None means the parent's model."""
    is_model_chosen: bool = False
    """Whether a person named the provider, which then may differ from the main model's."""
    thinking: str | None = None
    isolated: bool = False
    isolation: Literal["worktree"] | None = None
    cwd: str | None = None
    """Absolute; None means the parent's directory."""
    allow_write: bool | None = None
    """False leaves only read-only tools; None lets the definition decide."""
    join: Join = "async"
    is_background: bool = True
    skips_queue: bool = False
    call_id: str = ""
    occasion: str = ""
    """Key of what starts the run, if it must start only one, even if it is requested again after a crash."""
    session_file: str = ""
    """Empty means the default, beside the parent's session."""
    session_dir: str = ""
    """Directory for the session as `<run id>.jsonl`; the Manager turns it into `session_file`."""
    keeps_session: bool = True
    """False saves no session: the run can be resumed only within this process."""
    transcript_dir: str = ""
    """Directory of a readable transcript, `agent-<run id>.jsonl`; empty for none."""
    limits: Limits = Limits()
    """Only the fields in `ASKED` are stored."""
    invocation: dict[str, Any] = {}
    grant: Grant | None = None
    """A limit in addition to the rights of the parent, if another run requested it earlier."""
    extra_depth: int = 0
    """Added to the depth of the run."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema that its result must match, unless its definition has one."""
    verify: tuple[str, ...] = ()
    """Shell commands that must succeed before it is done, besides those of the settings and its definition."""
    is_verify_judged: bool = False
    """Whether a model named them: then hooks and approvals are asked about them."""


def store_request(request: RunRequest) -> dict[str, Any]:
    """Return a request as it is stored: its limits are top-level fields, in the order of older versions."""
    stored: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(request).items():
        if (name == "context" and value == "none") or (name in ("verify", "is_verify_judged") and not value):
            continue
        stored |= {each: value[each] for each in ASKED} if name == "limits" else {name: value}
        if name == "thinking":
            stored["max_turns"] = request.limits.max_turns
    return stored


def read_request(stored: Mapping[str, Any]) -> RunRequest:
    """Read a stored request. Raises ValidationError."""
    limits, rest = split_limits(stored)
    try:
        return msgspec.convert({**rest, "limits": limits}, type=RunRequest)
    except UsageError as error:
        raise msgspec.ValidationError(str(error)) from error


def split_limits(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    limits = {name: value for name, value in fields.items() if name in ASKED}
    return limits, {name: value for name, value in fields.items() if name not in limits}
