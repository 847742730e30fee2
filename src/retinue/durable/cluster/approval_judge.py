"""Decides in the front end about calls of runs on workers, using the hooks and approvals of local runs.

Must not know how requests are transported or what rules, hooks and users decide; it only asks them in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from retinue.core.errors import quote
from retinue.core.messages import Usage
from retinue.core.model import Model, ToolSpec
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Amendment, Effect, Tool, ToolContext, ToolResult
from retinue.durable.cluster.approval import ApprovalDecision, ApprovalRequest, SentCall, SentResult, Wants
from retinue.durable.cluster.remote_approvals import RemotelyApprovedModel, RemoteStopReview
from retinue.durable.cluster.sender import Cluster
from retinue.engine.calls import CallHook, describe_hook_conflict
from retinue.engine.loop import Ending
from retinue.engine.run_config import Origin
from retinue.engine.setup import FeatureStack, Reviewer, RunSetup
from retinue.features.approvals.gate import ApprovalGate
from retinue.features.hooks.feature import HookedModel, StopReview, ToolCallHooks

_ANY: Wants = {"call": True, "result": True}
"""For a hook that does not declare what it wants."""


OpenBelow = Callable[[Origin], Awaitable[RunSetup]]
"""Builds the setup of a child that a run on a worker has started, with its features not entered yet."""


class ApprovalJudge:
    """Decides for one run and the children it starts."""

    def __init__(self, setup: RunSetup, open_below: OpenBelow | None = None) -> None:
        """`setup` includes the local guards of the run; `open_below` builds the setup of its children."""
        self._own = RunHooks(setup)
        self._open_below = open_below
        self._below: dict[str, tuple[RunSetup, FeatureStack]] = {}
        self._hooks: dict[str, RunHooks] = {}
        """The hooks of children whose features are entered."""
        self._opening = asyncio.Lock()

    @property
    def wants(self) -> Wants:
        """What the worker must send about the run itself."""
        return self._own.wants

    def spare(self, tool: str, text: str) -> None:
        self._own.spare(tool, text)

    async def judge(self, case: ApprovalRequest) -> ApprovalDecision:
        """Return the decision; a failing hook means refusal. MUST NOT raise."""
        try:
            if case.origin is None:
                return await self._own.judge(case)
            if case.kind == "leave":
                await self._dismiss(case.origin.run_id, msgspec.convert(case.facts["outcome"], type=Outcome))
                return ApprovalDecision()
            hooks = await self._find_below(case.origin)
            return hooks if isinstance(hooks, ApprovalDecision) else await hooks.judge(case)
        except Exception as error:
            text = f"approval failed: {type(error).__name__}: {quote(str(error), 500)}"
            return _refuse(case, ToolResult.of(text, {}, is_error=True))

    async def close(self) -> None:
        """Leave the features of children."""
        for run_id in list(self._below):
            await self._dismiss(run_id, Outcome(Status.INTERRUPTED, Reason.PARENT))

    async def _find_below(self, origin: Origin) -> "RunHooks | ApprovalDecision":
        """Return the hooks of a child, after entering its features; a refusal if that fails."""
        run_id = origin.run_id
        async with self._opening:
            if run_id not in self._below:
                assert self._open_below is not None, "the worker was not asked for requests of children"
                self._below[run_id] = await self._open_below(origin), FeatureStack()
            if run_id not in self._hooks:
                setup, features = self._below[run_id]
                entered = await features.enter(setup)
                if isinstance(entered, Ending):
                    text = entered.error or "the hooks and approvals of the run could not be started"
                    given = SentResult.of(ToolResult.of(text, {}, is_error=True))
                    return ApprovalDecision(passes=False, given=given, words=text, wants=_ANY)
                self._hooks[run_id] = RunHooks(entered)
            return self._hooks[run_id]

    async def _dismiss(self, run_id: str, outcome: Outcome) -> None:
        self._hooks.pop(run_id, None)
        if (child := self._below.pop(run_id, None)) is not None:
            setup, features = child
            await features.leave(outcome, setup.limits.cleanup_s)


class RunHooks:
    """The hooks and reviewers of one run, in order."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._hooks: Sequence[CallHook] = setup.hooks
        self._models = _list_guards(setup.model)
        self._ends = [each for each in setup.reviewers if is_end(each)]

    @property
    def wants(self) -> Wants:
        """What the worker must send; the run waits if one of the hooks must decide."""
        found: Wants = {"stop": True} if any(getattr(each, "wants", True) for each in self._ends) else {}
        for each in (*self._hooks, *self._models):
            for kind, waits in getattr(each, "wants", _ANY).items():
                found[kind] = found.get(kind, False) or waits
        return found

    def spare(self, tool: str, text: str) -> None:
        """Remember that the user has just allowed a call with this text."""
        for gate in self._hooks:
            if isinstance(gate, ApprovalGate):
                gate.spare(tool, text)

    async def judge(self, case: ApprovalRequest) -> ApprovalDecision:
        match case.kind:
            case "enter":
                return ApprovalDecision(wants=self.wants)
            case "call":
                return await self._judge_call(case)
            case "result":
                return await self._judge_result(case)
            case "step":
                for guard in self._models:
                    if words := await guard.begin(dict(case.facts)):
                        return ApprovalDecision(passes=False, words=words)
            case "reply":
                for guard in self._models:
                    await guard.finish(_read_reply(case.facts))
            case "stop":
                return await self._judge_end(case)
        return ApprovalDecision()

    async def _judge_call(self, case: ApprovalRequest) -> ApprovalDecision:
        called = case.call
        assert called is not None
        tool, call = self._find_tool(called)
        made = called.made
        for place, hook in enumerate(self._hooks):
            key = f"hook {place}"
            if made is not None and made.keys[-1:] == (key,):
                continue  # a hook is not asked again about its own change
            if isinstance(hook, ApprovalGate):
                hook.know(call.id, self._translate(called), made)
            answer = await hook.before(call, tool)
            if isinstance(answer, Amendment):
                # Only the worker can say what the changed call means; it is decided when the worker asks again.
                return _change(case, answer if isinstance(hook, ApprovalGate) else _sign(answer, key, made), made)
            if answer is not None:
                return _refuse(case, answer)
        return ApprovalDecision()

    async def _judge_result(self, case: ApprovalRequest) -> ApprovalDecision:
        called, given = case.call, case.given
        assert called is not None and given is not None
        tool, call = self._find_tool(called)
        first = result = given.to_result()
        for hook in self._hooks:
            if isinstance(hook, ToolCallHooks):
                result = await hook.tell_end(call, result, int(case.facts.get("durationMs", 0)))
            else:
                result = await hook.after(call, tool, result)
        if result is first:
            return ApprovalDecision()
        return ApprovalDecision(given=SentResult.of(result), details=_to_plain(result.details))

    async def _judge_end(self, case: ApprovalRequest) -> ApprovalDecision:
        outcome = Outcome(Status.COMPLETED, Reason.DONE, text=str(case.facts.get("content", "")))
        for review in self._ends:
            verdict = await review.review(outcome)
            if isinstance(verdict, str):
                return ApprovalDecision(words=verdict)
            if isinstance(verdict, Outcome) and verdict.status is Status.FAILED:
                return ApprovalDecision(error=verdict.error or "refused")
        return ApprovalDecision()

    def _find_tool(self, called: SentCall) -> tuple[Tool, Any]:
        """Return tool and call under their local names, or a placeholder for a tool that is missing here."""
        tools = self._setup.tools
        for visible in (called.shown, *tools):
            if visible in tools and tools[visible].spec.own_name == called.name:
                return tools[visible], msgspec.structs.replace(called.to_call(), name=visible)
        return _WorkerTool(called.name, called.effect), called.to_call()

    def _translate(self, called: SentCall) -> tuple[str, ...]:
        """Return the texts of a call with the worker's folder replaced by the local one."""
        here = str(self._setup.cwd)
        return tuple(form.replace(called.cwd, here) if called.cwd else form for form in called.forms)


class _WorkerTool:
    """Placeholder for a tool that only the worker has: hooks need its name and effect."""

    hint = ""
    guidelines: tuple[str, ...] = ()

    def __init__(self, name: str, effect: Effect) -> None:
        self.spec = ToolSpec(name, "", {})
        self.effect = effect

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult.of("this tool is only on the worker", {}, is_error=True)


def is_end(reviewer: Reviewer) -> bool:
    """Return whether a reviewer can make a run continue at its end, so that the worker must ask it."""
    return isinstance(reviewer, StopReview | RemoteStopReview)


def _list_guards(model: Model | None) -> list[HookedModel | RemotelyApprovedModel]:
    """Return the hooks around a model, outermost first."""
    found = []
    while model is not None:
        if isinstance(model, HookedModel | RemotelyApprovedModel):
            found.append(model)
        model = getattr(model, "inner_model", None) or getattr(model, "model", None)
    return found


def _refuse(case: ApprovalRequest, result: ToolResult) -> ApprovalDecision:
    words = "\n".join(getattr(block, "text", "") for block in result.content)
    if case.kind == "stop":
        return ApprovalDecision(error=words)
    if case.kind == "result":
        return ApprovalDecision()
    return ApprovalDecision(
        passes=False, given=SentResult.of(result), details=_to_plain(result.details), words=words, wants=_ANY
    )


def _sign(answer: Amendment, key: str, made: Amendment | None) -> Amendment:
    """Combine a hook's change with earlier changes of the call."""
    past = made or Amendment({})
    word, reason = ("ask", past.reason) if past.word == "ask" else ("", "")
    return Amendment(answer.arguments, (*past.by, *answer.by), (*past.keys, key), word, reason)


def _change(case: ApprovalRequest, change: Amendment, made: Amendment | None) -> ApprovalDecision:
    """Have the changed call approved again; refuse it if hooks keep changing each other's changes."""
    if made is not None and change.keys[-1] in made.keys:
        return _refuse(case, ToolResult.of(describe_hook_conflict(change.by), {}, is_error=True))
    # A worker that does not support changes must not make the original call.
    text = "hooks changed its arguments, and this worker cannot make the changed call"
    return msgspec.structs.replace(_refuse(case, ToolResult.of(text, {}, is_error=True)), change=change)


def _to_plain(details: Any) -> Any:
    return None if details is msgspec.UNSET else msgspec.to_builtins(details, enc_hook=str)


def _read_reply(facts: Mapping[str, Any]) -> dict[str, Any]:
    if "usage" not in facts:
        return dict(facts)
    return {**facts, "usage": msgspec.convert(facts["usage"], type=Usage)}


class ApprovalListener:
    """Handles the approval requests of one run while this front end follows it."""

    def __init__(self, cluster: Cluster, run: str, judge: ApprovalJudge, is_attended: Callable[[], bool]) -> None:
        """`is_attended` tells whether a user could be asked."""
        self._cluster = cluster
        self._run = run
        self._judge = judge
        self._is_attended = is_attended
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        """Requests left unanswered when the last user disconnected."""
        self._telling = asyncio.Lock()
        self.has_begun = False
        """Whether `run` was started."""

    async def run(self) -> None:
        """Handle requests until cancelled; cancelling withdraws open questions."""
        async with asyncio.TaskGroup() as group:
            while True:
                cases = await self._cluster.read_cases(self._run)
                open_keys = {case.key for case in cases}
                # Withdraw requests that the worker no longer waits for.
                for key in [key for key in self._busy if key not in open_keys]:
                    self._busy[key].cancel()
                for case in cases:
                    is_left = case.key in self._left and not self._is_attended()
                    if case.key not in self._busy and not is_left:
                        self._busy[case.key] = group.create_task(self._hear(case))
                await self._cluster.await_cases(self._run)

    async def close(self) -> None:
        """Deliver the remaining notices of a finished run and delete its requests."""
        for case in await self._cluster.read_cases(self._run):
            if not case.waits:
                await self._hear(case)
        await self._judge.close()
        await self._cluster.forget_cases(self._run)

    async def _hear(self, case: ApprovalRequest) -> None:
        try:
            if case.waits:
                await self._rule(case)
            else:
                # Notices are delivered one by one in their order.
                async with self._telling:
                    await self._cluster.settle(self._run, case, await self._judge.judge(case))
        finally:
            self._busy.pop(case.key, None)

    async def _rule(self, case: ApprovalRequest) -> None:
        had_user = self._is_attended()
        ruling = await self._judge.judge(case)
        if had_user and not ruling.passes and not self._is_attended():
            # It may be refused only because the last user disconnected: ask again when a user returns.
            self._left.add(case.key)
            return
        self._left.discard(case.key)
        await self._cluster.settle(self._run, case, ruling)
