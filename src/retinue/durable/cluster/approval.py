"""What is judged in the front end: the calls of runs on workers, the answers, and the tables they are in.

Plain data that travels; who judges, and how it gets there, is decided elsewhere.
"""

import hashlib
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from retinue.core.messages import ImageContent, TextContent, ToolCall, UserContent
from retinue.core.tool import Amendment, Effect, Tool, ToolResult
from retinue.durable.cluster.assignment import CHANNEL
from retinue.durable.cluster.database import Database, pack_json
from retinue.durable.cluster.record import RunTakenOver
from retinue.engine.run_config import Origin

Kind: TypeAlias = Literal["enter", "call", "result", "step", "reply", "stop", "leave"]
"""A run begins that another one on a worker has started; a call before it acts, and its result; a request to the model,
and its reply; the end of a run; the end of one that another has started."""
Wants: TypeAlias = dict[str, bool]
"""Which kinds of cases are wanted, and whether the run waits for a ruling."""
MAX_TOLD = 64_000
"""Characters of a result or a reply that are told."""


class Called(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call, as those who judge it must know it."""

    id: str
    name: str
    shown: str = ""
    """What its model calls it, where an agent has more than one name for a tool."""
    effect: Effect
    arguments: dict[str, Any]
    cwd: str = ""
    """Where the run works on its worker."""
    forms: tuple[str, ...] = ()
    """What the call says, with paths as they really are there."""
    made: Amendment | None = None
    """What hooks at the face have made of it; it is asked about once more, with what it says now."""

    def to_call(self) -> ToolCall:
        """As hooks get it."""
        return ToolCall(self.id, self.name, self.arguments)


class Given(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a call, bounded."""

    content: list[UserContent]
    is_error: bool = False
    ends_run: bool = False

    def to_result(self) -> ToolResult:
        """As hooks get it."""
        return ToolResult(list(self.content), UNSET, self.is_error, self.ends_run)


class Case(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that is asked about, or told."""

    key: str
    kind: Kind
    waits: bool = True
    """Whether the run does nothing more before there is a ruling."""
    origin: Origin | None = None
    """Whose it is, when it is not the run's itself."""
    call: Called | None = None
    given: Given | None = None
    facts: dict[str, Any] = {}
    """What else there is to say."""

    @property
    def run_id(self) -> str:
        """Of the run that was started elsewhere; empty for the run's own."""
        return "" if self.origin is None else self.origin.run_id

    @property
    def digest(self) -> str:
        """The same for the very same call of the same run; empty for what is no call."""
        if self.kind != "call" or self.call is None:
            return ""
        # A yes to a changed call is none to the same call by the model itself: other hooks were asked.
        made = () if self.call.made is None else (self.call.made.keys,)
        said = (self.run_id, self.call.name, self.call.arguments, *made)
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


class Ruling(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is to become of a case."""

    passes: bool = True
    given: Given | None = None
    """The result of the call instead of its own."""
    details: Any = None
    words: str = ""
    """Said to a run that would stop, which goes on; or why a step is refused."""
    error: str = ""
    """Why a run that has come to its end has failed."""
    change: Amendment | None = None
    """What the call is to be made with; it does not pass before it was asked about again."""
    wants: Wants = {}


class RemoteVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """A ruling on its way to the worker, with what it was about."""

    key: str
    ruling: Ruling
    digest: str = ""
    run_id: str = ""
    call_id: str = ""


def describe_tool(
    call: ToolCall, tool: Tool, cwd: str, forms: tuple[str, ...], made: Amendment | None = None
) -> Called:
    """A call as it is sent."""
    name, shown = tool.spec.own_name, call.name
    return Called(
        id=call.id,
        name=name,
        shown=shown,
        effect=tool.effect,
        arguments=call.arguments,
        cwd=cwd,
        forms=forms,
        made=made,
    )


def bound_result(result: ToolResult) -> Given:
    """A result as it is sent: the beginning of its text, and no images."""
    left, content = MAX_TOLD, list[UserContent]()
    for block in result.content:
        if isinstance(block, ImageContent):
            content.append(TextContent("[an image]"))
        elif left > 0:
            piece = block.text[:left]
            left -= len(piece)
            content.append(TextContent(piece if len(piece) == len(block.text) else f"{piece}\n[cut here]"))
    return Given(content=content, is_error=result.is_error, ends_run=result.ends_run)


def to_given(result: ToolResult) -> Given:
    """A result that is to count, whole."""
    return Given(content=list(result.content), is_error=result.is_error, ends_run=result.ends_run)


RULING = "ruling"
"""How rulings are called among the words that are said to a run."""


async def bring_case(database: Database, run: str, epoch: int, case: Case) -> None:
    """Put a case before the face of a run, whichever it is by now; raises Fenced when the run is another worker's."""
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
        raise RunTakenOver(f"run {run} is another worker's now")


async def list_cases(database: Database, run: str) -> list[Case]:
    """Those of a run that nobody has judged; nobody waits any more for what a former worker has asked."""
    rows = await database.fetch(
        "SELECT c.data FROM retinue.cases c JOIN retinue.runs r ON r.id = c.id"
        " WHERE c.id = %s AND (NOT c.waits OR c.epoch = r.epoch)"
        " AND NOT EXISTS (SELECT 1 FROM retinue.words w WHERE w.key = c.key) ORDER BY c.seq",
        run,
    )
    return [msgspec.json.decode(bytes(data), type=Case) for (data,) in rows]


async def settle_case(database: Database, run: str, case: Case, ruling: Ruling) -> None:
    """Let the run know, once: the first ruling on a case counts."""
    if not case.waits:
        await database.fetch("DELETE FROM retinue.cases WHERE key = %s", case.key)
        return
    call_id = "" if case.call is None else case.call.id
    verdict = RemoteVerdict(key=case.key, ruling=ruling, digest=case.digest, run_id=case.run_id, call_id=call_id)
    await database.fetch(
        "WITH said AS (INSERT INTO retinue.words (id, key, kind, data) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING) SELECT pg_notify(%s, %s)",
        run,
        case.key,
        RULING,
        pack_json(verdict),
        CHANNEL,
        run,
    )


async def forget_cases(database: Database, run: str) -> None:
    """Nobody will ask for the cases of a finished run again."""
    await database.fetch("DELETE FROM retinue.cases WHERE id = %s", run)
