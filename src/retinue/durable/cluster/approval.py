"""Approval requests for calls of runs on workers, the decisions, and their database tables.

Plain serialisable data. Must not know who decides or how it is transported.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from retinue.core.messages import ImageContent, TextContent, ToolCall, UserContent
from retinue.core.tool import Amendment, Effect, Tool, ToolResult
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.record import RunTakenOver
from retinue.engine.run_config import Origin

Kind: TypeAlias = Literal["enter", "call", "result", "step", "reply", "stop", "leave"]
"""enter: a run on a worker has started a child; call and result: before and after a tool call; step and reply: before
and after a model request; stop: the run would end; leave: such a child has ended.
"""
Wants: TypeAlias = dict[str, bool]
"""Which kinds are requested, and whether the run waits for the decision."""
MAX_TOLD = 64_000
"""Maximum characters of a result or reply that are sent."""


class SentCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call as it is sent for approval."""

    id: str
    name: str
    shown: str = ""
    """The name that the model uses, if the agent renamed the tool."""
    effect: Effect
    arguments: dict[str, Any]
    cwd: str = ""
    """The run's working directory on its worker."""
    forms: tuple[str, ...] = ()
    """Texts that approval rules match, with real paths of the worker."""
    made: Amendment | None = None
    """Changes by hooks of the front end; the changed call needs approval again."""

    @classmethod
    def of(
        cls, call: ToolCall, tool: Tool, cwd: str, forms: tuple[str, ...], made: Amendment | None = None
    ) -> "SentCall":
        return cls(
            id=call.id,
            name=tool.spec.own_name,
            shown=call.name,
            effect=tool.effect,
            arguments=call.arguments,
            cwd=cwd,
            forms=forms,
            made=made,
        )

    def to_call(self) -> ToolCall:
        return ToolCall(self.id, self.name, self.arguments)


class SentResult(Struct, frozen=True, kw_only=True, rename="camel"):
    content: list[UserContent]
    is_error: bool = False
    ends_run: bool = False

    @classmethod
    def of(cls, result: ToolResult, most: int | None = None) -> "SentResult":
        """Convert a result; with `most` only the beginning of its text."""
        content = list(result.content) if most is None else shorten_content(result.content, most)
        return cls(content=content, is_error=result.is_error, ends_run=result.ends_run)

    def to_result(self, details: Any = UNSET) -> ToolResult:
        return ToolResult(list(self.content), details, self.is_error, self.ends_run)


class ApprovalRequest(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An approval request or a notice."""

    key: str
    kind: Kind
    waits: bool = True
    """Whether the run waits for the decision."""
    origin: Origin | None = None
    """The child that this is about; None for the run itself."""
    call: SentCall | None = None
    given: SentResult | None = None
    facts: dict[str, Any] = {}
    """Other data, depending on the kind."""

    @property
    def run_id(self) -> str:
        """The id of the child; empty for the run itself."""
        return "" if self.origin is None else self.origin.run_id

    @property
    def digest(self) -> str:
        """Equal for identical calls of the same run; empty if this is not a call."""
        if self.kind != "call" or self.call is None:
            return ""
        # Approving a changed call does not approve the model's own identical call: other hooks were asked.
        made = () if self.call.made is None else (self.call.made.keys,)
        said = (self.run_id, self.call.name, self.call.arguments, *made)
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


class ApprovalDecision(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The decision about a request."""

    passes: bool = True
    given: SentResult | None = None
    """Replaces the result of the call."""
    details: Any = None
    words: str = ""
    """A message for a run that would stop and now continues; or why a model request is refused."""
    error: str = ""
    """Why a run that has ended counts as failed."""
    change: Amendment | None = None
    """New arguments for the call, which must be approved again."""
    wants: Wants = {}


class RemoteVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision on its way to the worker, with what it was about."""

    key: str
    ruling: ApprovalDecision
    digest: str = ""
    run_id: str = ""
    call_id: str = ""


def shorten_content(content: Iterable[UserContent], left: int) -> list[UserContent]:
    """Return the first `left` characters of a content, without images."""
    kept = list[UserContent]()
    for block in content:
        if isinstance(block, ImageContent):
            kept.append(TextContent("[an image]"))
        elif left > 0:
            cut = block.text[:left]
            left -= len(cut)
            kept.append(TextContent(cut if len(cut) == len(block.text) else f"{cut}\n[cut here]"))
    return kept


async def bring_case(database: Database, run: str, epoch: int, case: ApprovalRequest) -> None:
    """Store a request and notify the run's front end. Raises RunTakenOver if another worker owns the run."""
    rows = await database.fetch(
        "WITH held AS (SELECT id, face FROM retinue.runs WHERE id = %s AND epoch = %s AND finished IS NULL FOR SHARE),"
        " put AS (INSERT INTO retinue.cases (key, id, epoch, waits, data)"
        " SELECT %s, id, %s, %s, %s FROM held ON CONFLICT DO NOTHING)"
        " SELECT pg_notify(face, id) FROM held",
        run,
        epoch,
        case.key,
        epoch,
        case.waits,
        msgspec.json.encode(case),
    )
    if not rows:
        raise RunTakenOver.of(run)
