"""What stands around a run on a worker whose calls are judged at its face: each waits for a ruling before it acts.

A sibling of `recorded`: knows how to ask, and neither rules nor hooks nor people. Nothing passes without a ruling.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import structs

from retinue.core.errors import quote
from retinue.core.messages import ToolCall
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.core.run import Outcome, Reason, Status
from retinue.core.schema import fit_arguments
from retinue.core.tool import Amendment, Tool, ToolResult
from retinue.durable.cluster.approval import (
    MAX_TOLD,
    Case,
    Kind,
    RemoteVerdict,
    Ruling,
    Wants,
    bound_result,
    describe_tool,
)
from retinue.engine.calls import Answer
from retinue.engine.run_config import Origin
from retinue.engine.setup import RunSetup
from retinue.features.approvals.rules import describe_call
from retinue.features.hooks.feature import CallWatch

Submit = Callable[[Case], Awaitable[None]]
_ANY: Wants = {"call": True, "step": True, "stop": True}
"""Where a run comes by next, whatever it does."""


class Appeals:
    """One run's way to its face, also for the runs that it starts."""

    def __init__(
        self,
        submit: Submit,
        wants: Wants | None = None,
        *,
        is_on: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`wants`: what the face judges of the run itself; `is_on`: whether also what those do that it starts.

        `on_change` is called when it has turned out what is asked about of a run below.
        """
        self.wants: Wants = dict(wants or {})
        self.is_on = is_on
        self._below: list[Judged] = []
        self._submit = submit
        self._waiting: dict[str, asyncio.Future[Ruling]] = {}
        self._spare: dict[str, list[RemoteVerdict]] = {}
        """Rulings on calls of an earlier worker that died before it could use them."""
        self._is_open = False
        self.on_change = on_change

    def awaken(self, wants: Wants, *, is_on: bool) -> None:
        """The face has come to have something to say, with the run on its way already: from now on it is asked."""
        merge_wants(self.wants, wants)
        self.is_on = self.is_on or is_on
        if self.is_on:
            for judged in self._below:
                judged.awaken(self.wants)

    def surround(self, origin: Origin) -> "Judged":
        """What stands around a run that this one starts: its face judges that, too, now or later."""
        judged = Judged(self, wants=None if self.is_on else {}, origin=origin)
        self._below.append(judged)
        return judged

    def part(self, judged: "Judged") -> None:
        """A run below has ended."""
        if judged in self._below:
            self._below.remove(judged)

    async def ask(self, case: Case) -> Ruling:
        """Wait for a ruling, for as long as it takes. Raises Fenced when the run is another worker's."""
        if (known := self._find_spare(case)) is not None:
            return known.ruling
        future: asyncio.Future[Ruling] = asyncio.get_running_loop().create_future()
        self._waiting[case.key] = future
        try:
            await self._submit(case)
            return await future
        finally:
            self._waiting.pop(case.key, None)

    async def tell(self, case: Case) -> None:
        """Let the face know; nobody waits for what it makes of it."""
        await self._submit(case)

    def take(self, data: dict[str, Any]) -> None:
        """Hear a ruling. MUST NOT raise."""
        try:
            verdict = msgspec.convert(data, type=RemoteVerdict)
        except msgspec.ValidationError:
            return
        future = self._waiting.get(verdict.key)
        if future is not None and not future.done():
            future.set_result(verdict.ruling)
        elif verdict.digest and not self._is_open:
            self._spare.setdefault(verdict.digest, []).append(verdict)

    def open(self, calls: Iterable[str]) -> None:
        """The run goes on: a ruling on one of these calls, which are on its record, may have been used already."""
        self._is_open = True
        used = set(calls)
        for digest, verdicts in list(self._spare.items()):
            self._spare[digest] = [each for each in verdicts if each.run_id or each.call_id not in used]

    def _find_spare(self, case: Case) -> RemoteVerdict | None:
        """A ruling on the very same call, once; of a run started elsewhere only on the same one."""
        if (call := case.call) is None:
            return None
        for verdict in self._spare.get(case.digest, ()):
            if not case.run_id or verdict.call_id == call.id:
                self._spare[case.digest].remove(verdict)
                return verdict
        return None


class Judged:
    """The feature of a run whose face has something to say about what it does."""

    name = "judgement"

    def __init__(self, appeals: Appeals, *, wants: Wants | None = None, origin: Origin | None = None) -> None:
        """`wants`: what the face judges; None for a run started by another one, whose face is asked when it begins.

        It is looked at each time: a face may come to want something while the run works.
        """
        self._appeals = appeals
        self._asks_first = wants is None
        self._wants: Wants = {} if wants is None else wants
        self._origin = origin
        self._has_entered = False
        self._known: Wants | None = None
        """What was asked about before the face came to want more, until it is known what that is."""

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Stand at each point that somebody there looks at, or may look at later."""
        if self._origin is not None:
            self._origin = msgspec.structs.replace(self._origin, run_id=setup.run_id)
        line = ApprovalLine(self._appeals, self._origin, self._catch_up)
        if self._asks_first:
            merge_wants(self._wants, _read_wants(await line.ask("enter")))
            self._has_entered = True
        # Who watches what is really made hears of it when it is settled.
        watches = [hook for hook in setup.hooks if isinstance(hook, CallWatch)]
        others = [hook for hook in setup.hooks if not isinstance(hook, CallWatch)]
        return setup.change(
            hooks=(*others, JudgedCalls(line, self._wants, str(setup.cwd)), *watches),
            model=JudgedModel(setup.model, line, self._wants, setup),
            reviewers=(*setup.reviewers, JudgedEnd(line, self._wants)),
        )

    def awaken(self, wants: Wants) -> None:
        """Ask about a run below from now on: wherever it comes by next the face says what it wants to know."""
        if self._known is None:
            self._known = dict(self._wants)
        merge_wants(self._known, wants)
        merge_wants(self._wants, _ANY | wants)
        self._has_entered = True

    async def _catch_up(self, line: "ApprovalLine") -> None:
        """Ask what is wanted of it, as of one that begins: its agent's file may have hooks of its own there."""
        known, self._known = self._known, None
        if known is None:
            return
        merge_wants(known, _read_wants(await line.ask("enter")))
        if self._known is not None:
            merge_wants(self._known, known)  # the face has changed its mind meanwhile
            return
        self._wants.clear()
        self._wants.update(known)
        self._appeals.on_change()

    async def leave(self, outcome: Outcome) -> Outcome:
        """Tell how it ended: the face knows that by itself only of a run that it has sent."""
        self._appeals.part(self)
        if self._has_entered:
            told = msgspec.structs.replace(outcome, text=outcome.text[:MAX_TOLD], session_file="")
            await ApprovalLine(self._appeals, self._origin).tell("leave", facts={"outcome": msgspec.to_builtins(told)})
        return outcome


class ApprovalLine:
    """Puts what one run does to its face."""

    def __init__(
        self,
        appeals: Appeals,
        origin: Origin | None,
        catch_up: "Callable[[ApprovalLine], Awaitable[None]] | None" = None,
    ) -> None:
        """`catch_up` finds out what is wanted, where that has changed."""
        self._appeals = appeals
        self._origin = origin
        self._catch_up = catch_up

    async def open(self) -> None:
        """The run has come to a point at which it may be asked about."""
        if self._catch_up is not None:
            await self._catch_up(self)

    async def ask(self, kind: Kind, **parts: Any) -> Ruling:
        """Wait for a ruling."""
        return await self._appeals.ask(Case(key=uuid4().hex, kind=kind, origin=self._origin, **parts))

    async def tell(self, kind: Kind, **parts: Any) -> None:
        """Go on at once."""
        await self._appeals.tell(Case(key=uuid4().hex, kind=kind, waits=False, origin=self._origin, **parts))


class JudgedCalls:
    """Asks about each call. Stands behind all that may refuse one on the worker: that need not be asked about."""

    def __init__(self, line: ApprovalLine, wants: Wants, cwd: str) -> None:
        self._wants = wants
        self._line = line
        self._cwd = cwd
        self._begun_s: dict[str, float] = {}

    @property
    def wants(self) -> Wants:
        """What of a call is asked about, by now."""
        return select_wants(self._wants, "call", "result")

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """None when it may act; what it is to be made with when hooks at the face want that."""
        made, ruling = None, Ruling()
        await self._line.open()
        wants = self._wants
        if wants.get("call", False):
            ruling = await self._line.ask("call", call=self._describe(call, tool))
            while ruling.change is not None and not ruling.passes:
                made = ruling.change
                arguments, problems = fit_arguments(made.arguments, tool.spec.parameters)
                if problems:
                    text = f"{call.name} was not run: {', '.join(map(quote, made.by))} changed its arguments: "
                    return ToolResult.of(text + "; ".join(problems[:8]), {}, is_error=True)
                call, made = structs.replace(call, arguments=arguments), structs.replace(made, arguments=arguments)
                ruling = await self._line.ask("call", call=self._describe(call, tool, made))
        elif "call" in wants:
            await self._line.tell("call", call=self._describe(call, tool))
        if ruling.passes:
            self._begun_s[call.id] = asyncio.get_running_loop().time()
            return made
        refusal = _to_result(ruling) or ToolResult.of(f"{call.name} was refused", {}, is_error=True)
        return refusal if made is None else refusal.note(made.describe())

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """The result, or what the face makes of it."""
        now_s = asyncio.get_running_loop().time()
        took_s = now_s - self._begun_s.pop(call.id, now_s)
        if "result" not in self._wants:
            return result
        facts = {"durationMs": round(took_s * 1000)}
        parts = {"call": self._describe(call, tool), "given": bound_result(result), "facts": facts}
        if not self._wants["result"]:
            await self._line.tell("result", **parts)
            return result
        changed = _to_result(await self._line.ask("result", **parts))
        if changed is None or not isinstance(changed.details, dict):
            return changed or result
        # What is in the details here never was there.
        return replace(changed, details=result.details).note(changed.details)

    def _describe(self, call: ToolCall, tool: Tool, made: Amendment | None = None) -> Any:
        names = filter(None, (call.name, tool.spec.name))
        seen = describe_call(names, call.arguments, self._cwd)
        return describe_tool(call, tool, self._cwd, seen.real, made)


class JudgedModel:
    """A model that is asked when the face lets the run go on."""

    def __init__(self, model: Model, line: ApprovalLine, wants: Wants, setup: RunSetup) -> None:
        self.inner_model = model
        """For whoever needs the model without this run's judges."""
        self._wants = wants
        self._line = line
        self._setup = setup

    @property
    def wants(self) -> Wants:
        """What of a turn is asked about, by now."""
        return select_wants(self._wants, "step", "reply")

    @property
    def info(self) -> ModelInfo:
        """The model's own."""
        return self.inner_model.info

    def rewrap(self, model: Model) -> "JudgedModel":
        """The same around another model."""
        return JudgedModel(model, self._line, self._wants, self._setup)

    async def begin(self, facts: dict[str, Any]) -> str:
        """Why the model must not be asked; empty when it may be."""
        with self._setup.patience():
            await self._line.open()
        if "step" not in self._wants:
            return ""
        if not self._wants["step"]:
            await self._line.tell("step", facts=facts)
            return ""
        with self._setup.patience():
            ruling = await self._line.ask("step", facts=facts)
        return "" if ruling.passes else ruling.words or "this step was refused"

    async def finish(self, facts: dict[str, Any]) -> None:
        """Tell what came of it."""
        if "reply" in self._wants:
            await self._line.tell("reply", facts=facts)

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Ask the face, then the model."""
        if not self._wants:
            return await self.inner_model.reply(request, draft)
        ref = self.inner_model.info.ref
        sent = {"model": ref, "messages": len(request.messages), "tools": [tool.name for tool in request.tools]}
        if refusal := await self.begin(sent):
            return Reply(draft.finish("error", error=refusal), Failure("refused", refusal))
        reply = await self.inner_model.reply(request, draft)
        if "reply" in self._wants:
            await self.finish(describe_reply(ref, reply))
        return reply


class JudgedEnd:
    """Lets the face send a run back that would stop."""

    def __init__(self, line: ApprovalLine, wants: Wants) -> None:
        self._line = line
        self._wants = wants

    @property
    def wants(self) -> Wants:
        """Whether the end is asked about, by now."""
        return select_wants(self._wants, "stop")

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """The words to go on with, or a failure."""
        await self._line.open()
        if "stop" not in self._wants:
            return None
        ruling = await self._line.ask("stop", facts={"content": outcome.text[:MAX_TOLD]})
        if ruling.error:
            return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=ruling.error)
        return ruling.words or None


def select_wants(wants: Wants, *kinds: str) -> Wants:
    """Those of some kinds."""
    return {kind: wants[kind] for kind in kinds if kind in wants}


def merge_wants(wants: Wants, more: Wants) -> None:
    """Add what is wanted as well; whoever waits for one of them goes on waiting."""
    for kind, waits in more.items():
        wants[kind] = wants.get(kind, False) or waits


def _read_wants(ruling: Ruling) -> Wants:
    """What is wanted of a run that begins; all of it when nobody could say."""
    return ruling.wants if ruling.passes else _ANY | ruling.wants


def describe_reply(ref: str, reply: Reply) -> dict[str, Any]:
    """A reply as it is told."""
    if reply.failure is not None:
        return {"model": ref, "error": reply.failure.message, "kind": reply.failure.kind}
    message = reply.message
    return {
        "model": ref,
        "content": message.text[:MAX_TOLD],
        "toolCalls": [{"name": call.name, "arguments": call.arguments} for call in message.calls],
        "stopReason": message.stop_reason,
        "usage": msgspec.to_builtins(message.usage),
    }


def _to_result(ruling: Ruling) -> ToolResult | None:
    if ruling.given is None:
        return None
    given = ruling.given
    return ToolResult(list(given.content), ruling.details or {}, given.is_error, given.ends_run)
