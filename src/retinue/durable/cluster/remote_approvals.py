"""Approvals on a worker: each call of a run waits for the decision of its front end.

Like `recorded_run`, it knows how to ask but no rules, hooks or users. Nothing passes without a decision.
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
    ApprovalDecision,
    ApprovalRequest,
    Kind,
    RemoteVerdict,
    SentCall,
    SentResult,
    Wants,
)
from retinue.engine.calls import Answer
from retinue.engine.model_choice import LastingWrapper
from retinue.engine.run_config import Origin
from retinue.engine.setup import RunSetup
from retinue.features.approvals.rules import describe_call
from retinue.features.hooks.feature import ToolCallHooks

Submit = Callable[[ApprovalRequest], Awaitable[None]]
_ANY: Wants = {"call": True, "step": True, "stop": True}
"""The points that every run passes next, whatever it does."""


class RemoteApprovals:
    """Sends approval requests of a run and its children to the front end."""

    def __init__(
        self,
        submit: Submit,
        wants: Wants | None = None,
        *,
        is_on: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`wants`: what the front end decides about the run itself; `is_on`: whether it decides about children too.

        `on_change` is called when the requests of a child have changed.
        """
        self.wants: Wants = dict(wants or {})
        self.is_on = is_on
        self._below: list[RemoteApprovalFeature] = []
        self.submit = submit
        self._waiting: dict[str, asyncio.Future[ApprovalDecision]] = {}
        self._spare: dict[str, list[RemoteVerdict]] = {}
        """Decisions for an earlier worker that died before it could use them."""
        self._is_open = False
        self.on_change = on_change

    def awaken(self, wants: Wants, *, is_on: bool) -> None:
        """Start asking: the front end got rules after the run was sent."""
        merge_wants(self.wants, wants)
        self.is_on = self.is_on or is_on
        if self.is_on:
            for judged in self._below:
                judged.awaken(self.wants)

    def surround(self, origin: Origin) -> "RemoteApprovalFeature":
        """Return the approvals feature for a child, whose calls the front end decides about now or later."""
        judged = RemoteApprovalFeature(self, wants=None if self.is_on else {}, origin=origin)
        self._below.append(judged)
        return judged

    def part(self, judged: "RemoteApprovalFeature") -> None:
        """Forget a child that has ended."""
        if judged in self._below:
            self._below.remove(judged)

    async def ask(self, case: ApprovalRequest) -> ApprovalDecision:
        """Wait for a decision without a time limit. Raises RunTakenOver if another worker owns the run."""
        if (known := self._find_spare(case)) is not None:
            return known.ruling
        future: asyncio.Future[ApprovalDecision] = asyncio.get_running_loop().create_future()
        self._waiting[case.key] = future
        try:
            await self.submit(case)
            return await future
        finally:
            self._waiting.pop(case.key, None)

    def take(self, data: dict[str, Any]) -> None:
        """Receive a decision. MUST NOT raise."""
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
        """Resume the run; decisions on these recorded calls may have been used already."""
        self._is_open = True
        used = set(calls)
        for digest, verdicts in list(self._spare.items()):
            self._spare[digest] = [each for each in verdicts if each.run_id or each.call_id not in used]

    def _find_spare(self, case: ApprovalRequest) -> RemoteVerdict | None:
        """Return an unused decision on the identical call; for a child only if the call id matches too."""
        if (call := case.call) is None:
            return None
        for verdict in self._spare.get(case.digest, ()):
            if not case.run_id or verdict.call_id == call.id:
                self._spare[case.digest].remove(verdict)
                return verdict
        return None


class RemoteApprovalFeature:
    """The feature of a run whose front end decides about its calls."""

    name = "judgement"

    def __init__(self, approvals: RemoteApprovals, *, wants: Wants | None = None, origin: Origin | None = None) -> None:
        """`wants`: what the front end decides; None for a child, whose front end is asked at its start.

        Read at each use, because a front end may want more while the run works.
        """
        self._approvals = approvals
        self._asks_first = wants is None
        self.wants: Wants = {} if wants is None else wants
        self._origin = origin
        self._has_entered = False
        self._known: Wants | None = None
        """The known wants before the front end wanted more, until it has said what."""

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Add hooks at each point that the front end decides about, now or possibly later."""
        if self._origin is not None:
            self._origin = msgspec.structs.replace(self._origin, run_id=setup.run_id)
        if self._asks_first:
            merge_wants(self.wants, _read_wants(await self.ask("enter")))
            self._has_entered = True
        # Watches must come last, because they see the call as it is really made.
        watches = [hook for hook in setup.hooks if isinstance(hook, ToolCallHooks)]
        others = [hook for hook in setup.hooks if not isinstance(hook, ToolCallHooks)]
        return setup.change(
            hooks=(*others, RemoteCallHook(self, str(setup.cwd)), *watches),
            model=RemotelyApprovedModel(setup.model, self, setup),
            reviewers=(*setup.reviewers, RemoteStopReview(self)),
        )

    def awaken(self, wants: Wants) -> None:
        """Start asking about a child: at its next step the front end says what it wants."""
        if self._known is None:
            self._known = dict(self.wants)
        merge_wants(self._known, wants)
        merge_wants(self.wants, _ANY | wants)
        self._has_entered = True

    async def catch_up(self) -> None:
        """Ask what is wanted, if that has changed, as at the start of a run: the agent file may have hooks there."""
        known, self._known = self._known, None
        if known is None:
            return
        merge_wants(known, _read_wants(await self.ask("enter")))
        if self._known is not None:
            merge_wants(self._known, known)  # the front end has changed its wants meanwhile
            return
        self.wants.clear()
        self.wants.update(known)
        self._approvals.on_change()

    async def ask(self, kind: Kind, **parts: Any) -> ApprovalDecision:
        return await self._approvals.ask(ApprovalRequest(key=uuid4().hex, kind=kind, origin=self._origin, **parts))

    async def tell(self, kind: Kind, **parts: Any) -> None:
        """Send a notice without waiting."""
        await self._approvals.submit(
            ApprovalRequest(key=uuid4().hex, kind=kind, waits=False, origin=self._origin, **parts)
        )

    async def leave(self, outcome: Outcome) -> Outcome:
        """Report how a child ended; the front end itself knows it only of runs that it has sent."""
        self._approvals.part(self)
        if self._has_entered:
            told = msgspec.structs.replace(outcome, text=outcome.text[:MAX_TOLD], session_file="")
            await self.tell("leave", facts={"outcome": msgspec.to_builtins(told)})
        return outcome


class RemoteCallHook:
    """Asks about each call. Must be the last hook, so that calls refused on the worker are not sent."""

    def __init__(self, line: RemoteApprovalFeature, cwd: str) -> None:
        self._line = line
        self._cwd = cwd
        self._begun_s: dict[str, float] = {}

    @property
    def wants(self) -> Wants:
        """What of a call is requested at the moment."""
        return select_wants(self._line.wants, "call", "result")

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """Return None if the call may be made, a refusal, or arguments that hooks of the front end have changed."""
        made, ruling = None, ApprovalDecision()
        await self._line.catch_up()
        wants = self._line.wants
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
        now_s = asyncio.get_running_loop().time()
        took_s = now_s - self._begun_s.pop(call.id, now_s)
        if "result" not in self._line.wants:
            return result
        facts = {"durationMs": round(took_s * 1000)}
        parts = {"call": self._describe(call, tool), "given": SentResult.of(result, MAX_TOLD), "facts": facts}
        if not self._line.wants["result"]:
            await self._line.tell("result", **parts)
            return result
        changed = _to_result(await self._line.ask("result", **parts))
        if changed is None or not isinstance(changed.details, dict):
            return changed or result
        # The worker's details were never sent to the front end.
        return replace(changed, details=result.details).note(changed.details)

    def _describe(self, call: ToolCall, tool: Tool, made: Amendment | None = None) -> SentCall:
        names = filter(None, (call.name, tool.spec.name))
        return SentCall.of(call, tool, self._cwd, describe_call(names, call.arguments, self._cwd).real, made)


class RemotelyApprovedModel(LastingWrapper):
    """A model that is called only if the front end allows it."""

    def __init__(self, model: Model, line: RemoteApprovalFeature, setup: RunSetup) -> None:
        self.inner_model = model
        """The wrapped model."""
        self._line = line
        self._setup = setup

    @property
    def wants(self) -> Wants:
        """What of a turn is requested at the moment."""
        return select_wants(self._line.wants, "step", "reply")

    @property
    def info(self) -> ModelInfo:
        return self.inner_model.info

    def rewrap(self, model: Model) -> "RemotelyApprovedModel":
        """Wrap another model in the same way."""
        return RemotelyApprovedModel(model, self._line, self._setup)

    async def begin(self, facts: dict[str, Any]) -> str:
        """Return why the model must not be called; empty if it may."""
        with self._setup.pause_idle():
            await self._line.catch_up()
        if "step" not in self._line.wants:
            return ""
        if not self._line.wants["step"]:
            await self._line.tell("step", facts=facts)
            return ""
        with self._setup.pause_idle():
            ruling = await self._line.ask("step", facts=facts)
        return "" if ruling.passes else ruling.words or "this step was refused"

    async def finish(self, facts: dict[str, Any]) -> None:
        if "reply" in self._line.wants:
            await self._line.tell("reply", facts=facts)

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Ask the front end, then the model."""
        if not self._line.wants:
            return await self.inner_model.reply(request, draft)
        ref = self.inner_model.info.ref
        sent = {"model": ref, "messages": len(request.messages), "tools": [tool.name for tool in request.tools]}
        if refusal := await self.begin(sent):
            return Reply(draft.finish("error", error=refusal), Failure("refused", refusal))
        reply = await self.inner_model.reply(request, draft)
        if "reply" in self._line.wants:
            await self.finish(describe_reply(ref, reply))
        return reply


class RemoteStopReview:
    """Lets the front end make a run continue that would stop."""

    def __init__(self, line: RemoteApprovalFeature) -> None:
        self._line = line

    @property
    def wants(self) -> Wants:
        """Whether the end is requested at the moment."""
        return select_wants(self._line.wants, "stop")

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """Return a message to continue with, a failed outcome, or None."""
        await self._line.catch_up()
        if "stop" not in self._line.wants:
            return None
        ruling = await self._line.ask("stop", facts={"content": outcome.text[:MAX_TOLD]})
        if ruling.error:
            return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=ruling.error)
        return ruling.words or None


def select_wants(wants: Wants, *kinds: str) -> Wants:
    return {kind: wants[kind] for kind in kinds if kind in wants}


def merge_wants(wants: Wants, more: Wants) -> None:
    """Add wants; if one of both waits, the result waits."""
    for kind, waits in more.items():
        wants[kind] = wants.get(kind, False) or waits


def _read_wants(ruling: ApprovalDecision) -> Wants:
    """Return what is wanted of a run that begins; everything if the front end could not say."""
    return ruling.wants if ruling.passes else _ANY | ruling.wants


def describe_reply(ref: str, reply: Reply) -> dict[str, Any]:
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


def _to_result(ruling: ApprovalDecision) -> ToolResult | None:
    return None if ruling.given is None else ruling.given.to_result(ruling.details or {})
