"""Connect hooks to a run: its start and end, model requests, tool calls and stop.

The HookTable makes the decisions; this module calls it and applies them. Must not know approvals.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from retinue.core.clock import Clock
from retinue.core.messages import TextContent, ToolCall, join_text
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Tool, ToolResult
from retinue.engine.model_choice import LastingWrapper
from retinue.engine.setup import RunSetup
from retinue.features.hooks.hook_table import HookTable
from retinue.features.hooks.points import AFTER, FAILED, STEP, STOP

MAX_CONTINUATIONS = 2
"""How often hooks may make a run continue that would stop."""
CONTINUE_TEXT = "(continue)"
LOOP_TEXT = "[AGENT_LOOP_DETECTED] Stop hooks sent the run back more than {} times"
_MODEL_POINTS = (STEP, "llm.request.before", "llm.response.after", "llm.response.error")
_TOOL_POINTS = ("tool.execute.before", AFTER, FAILED)
_ENDS = {Reason.TURN_LIMIT: "maxSteps", Reason.TURN_LIMIT_WRAPPED: "maxSteps"}


class HooksFeature:
    name = "hooks"

    def __init__(self, hook_table: HookTable, clock: Clock, *, max_continuations: int = MAX_CONTINUATIONS) -> None:
        self._hook_table = hook_table
        self._clock = clock
        self._max_continuations = max_continuations
        self._turns = 0
        self._drain_s = 1.0

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Wrap the model and tool calls as far as hooks need it, and notify that the run starts."""
        hook_table = self._hook_table
        self._turns += 1
        self._drain_s = setup.limits.cleanup_s * 0.8
        turn_id = f"{setup.run_id}:{self._turns}"
        hook_table.facts.update(sessionId=setup.session_id, runId=setup.run_id, cwd=str(setup.cwd), turnId=turn_id)
        hook_table.boundary = setup.confinement
        if hook_table.has(*_MODEL_POINTS):
            setup = setup.change(model=HookedModel(setup.model, hook_table))
        if hook_table.has(*_TOOL_POINTS):
            setup = setup.change(hooks=(*setup.hooks, ToolCallHooks(hook_table, self._clock)))
        if hook_table.has(STOP):
            setup = setup.change(reviewers=(*setup.reviewers, StopReview(hook_table, self._max_continuations)))
        await hook_table.tell("agent.turn.start", {})
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        """Notify that the run ended, after its session was saved; slow hooks do not change the outcome."""
        facts = {"status": describe_end(outcome), **({"error": outcome.error} if outcome.error else {})}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                if outcome.session_file:
                    await self._hook_table.tell("session.save.after", {"path": outcome.session_file})
                await self._hook_table.tell("agent.turn.end", facts)
        self._hook_table.boundary = None
        return outcome


def describe_end(outcome: Outcome) -> str:
    """Return done, error, maxSteps or aborted."""
    if (word := _ENDS.get(outcome.reason)) is not None:
        return word
    if outcome.status is Status.COMPLETED:
        return "done"
    return "error" if outcome.status is Status.FAILED else "aborted"


class StopReview:
    """Lets hooks make a run continue when it would stop, a limited number of times."""

    def __init__(self, hook_table: HookTable, most: int) -> None:
        self._hook_table = hook_table
        self._most = most
        self._count = 0

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """Return the message to continue with; a failed outcome if that happened too often."""
        decision = await self._hook_table.decide(STOP, {"content": outcome.text})
        if decision is None or decision.word != "continue":
            return None
        self._count += 1
        if self._count > self._most:
            error = LOOP_TEXT.format(self._most)
            return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=error)
        return decision.injection or CONTINUE_TEXT


class HookedModel(LastingWrapper):
    """A model whose requests are announced to hooks, which may stop the run."""

    def __init__(self, model: Model, hook_table: HookTable) -> None:
        self.inner_model = model
        """The model without this run's hooks."""
        self._hook_table = hook_table
        self._steps = [0]
        """How many requests there were, also with other models."""

    @property
    def info(self) -> ModelInfo:
        return self.inner_model.info

    def rewrap(self, model: Model) -> "HookedModel":
        other = HookedModel(model, self._hook_table)
        other._steps = self._steps
        return other

    @property
    def wants(self) -> dict[str, bool]:
        """Which parts of a remote model request are needed here, and whether it waits for an answer."""
        has = self._hook_table.has
        told = {"reply": False} if has("llm.response.after", "llm.response.error") else {}
        return {"step": has(STEP), **told}

    async def begin(self, facts: Mapping[str, Any]) -> str:
        """Ask the hooks before a request; returns why the model must not be called, or an empty string."""
        hook_table = self._hook_table
        self._steps[0] += 1
        decision = await hook_table.decide(STEP, {"step": self._steps[0]})
        if decision is not None and decision.word == "deny":
            return f"[TOOL_NOT_ALLOWED] Step {self._steps[0]} denied: {decision.reason or 'no reason provided'}"
        await hook_table.tell("llm.request.before", {"step": self._steps[0], **facts})
        return ""

    async def finish(self, facts: Mapping[str, Any]) -> None:
        point = "llm.response.error" if "error" in facts else "llm.response.after"
        await self._hook_table.tell(point, {"step": self._steps[0], **facts})

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        ref = self.inner_model.info.ref
        sent = {"messages": len(request.messages), "tools": [tool.name for tool in request.tools]}
        if text := await self.begin({"model": ref, **sent}):
            return Reply(draft.finish("error", error=text), Failure("refused", text))
        reply = await self.inner_model.reply(request, draft)
        if reply.failure is not None:
            await self.finish({"model": ref, "error": reply.failure.message, "kind": reply.failure.kind})
        else:
            message = reply.message
            ref = f"{message.provider}/{message.model}"  # perhaps a fallback model
            calls = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
            said = {"content": message.text, "toolCalls": calls, "stopReason": message.stop_reason}
            await self.finish({"model": ref, **said, "usage": message.usage})
        return reply


class ToolCallHooks:
    """Notifies hooks of executed tool calls, and lets them change the results that the model sees.

    Comes after everything that may deny or change a call.
    """

    def __init__(self, hook_table: HookTable, clock: Clock) -> None:
        self._hook_table = hook_table
        self._clock = clock
        self._begun_s: dict[str, float] = {}

    @property
    def wants(self) -> dict[str, bool]:
        """Which parts of a remote call are needed here; calls wait only for hooks that decide."""
        hook_table = self._hook_table
        begun = {"call": False} if hook_table.has("tool.execute.before") else {}
        return begun | (
            {"result": hook_table.decides(AFTER) or hook_table.decides(FAILED)} if hook_table.has(AFTER, FAILED) else {}
        )

    async def before(self, call: ToolCall, tool: Tool) -> ToolResult | None:
        await self._hook_table.tell("tool.execute.before", describe_call(call))
        self._begun_s[call.id] = self._clock.steady_s()
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        begun_s = self._begun_s.pop(call.id, self._clock.steady_s())
        return await self.tell_end(call, result, round((self._clock.steady_s() - begun_s) * 1000))

    async def tell_end(self, call: ToolCall, result: ToolResult, duration_ms: int) -> ToolResult:
        """Notify hooks that a call ended, wherever it ran; returns the result, changed or not."""
        self._begun_s.pop(call.id, None)
        text = join_text(result.content)
        point, field = (FAILED, "error") if result.is_error else (AFTER, "result")
        facts = {**describe_call(call), "durationMs": duration_ms, field: text}
        if not self._hook_table.decides(point):
            await self._hook_table.tell(point, facts)
            return result
        shown, by = await self._hook_table.revise(point, facts, field)
        if not by:
            return result
        others = [block for block in result.content if not isinstance(block, TextContent)]
        changed = dataclasses.replace(result, content=[TextContent(shown), *others])
        return changed.note({"modifiedOutput": {"by": by}})


def describe_call(call: ToolCall) -> Mapping[str, Any]:
    return {"toolName": call.name, "args": call.arguments, "callId": call.id}
