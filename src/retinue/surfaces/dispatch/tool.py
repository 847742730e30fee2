"""The tool `dispatch_agent`: gives a task to an agent, waits, and returns its answer, in fifteen ordered steps.

Each step may refuse the call, which then has no effect: no run exists before the hooks have agreed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Event, RunFinished, RunStarted
from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.run import Reason, Run
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.core.tool_table import DISPATCH
from retinue.engine.admission import SpawnRefused
from retinue.engine.limits import Limits
from retinue.engine.request import RunRequest
from retinue.features.approvals.gate import deny
from retinue.features.hooks.hook_table import HookTable
from retinue.features.hooks.points import SPAWN
from retinue.models.registry import OutOfReach
from retinue.models.resolve import ModelChoice
from retinue.surfaces.base import OUTPUT_SCHEMA, VERIFY, Caller, read_output_schema, read_verify
from retinue.surfaces.dispatch.words import FAILED, DispatchFailed, describe_profile, explain_failure, render_result

META = "retinue.dispatched"
"""Custom entry of a child's session: its parent."""
STOP_S = 5.0
"""Seconds to wait for a stopped child, so that hooks are notified when it has really ended."""
DESCRIPTION = (
    "Hand a task to a subagent and wait for its answer, which is the result. The subagent knows nothing of this "
    "conversation: put everything it needs into the prompt. Several calls in one reply run side by side."
)
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the subagent"},
        "prompt": {"type": "string", "minLength": 1, "description": "The whole task, and what to report"},
        "output_schema": OUTPUT_SCHEMA,
        "verify": VERIFY,
    },
    "required": ["agent", "prompt"],
}


@dataclass(frozen=True, slots=True)
class DispatchPorts:
    """What the `dispatch_agent` tool of one run uses."""

    caller: Caller
    find: Callable[[str], Definition | None]
    """Returns the agent of this name, even a disabled one."""
    is_enabled: Callable[[], bool]
    is_disabled: Callable[[str], bool]
    find_model: Callable[[str], ModelChoice | None]
    """Returns the model of a profile (`model@API_KEY_ENV`, an id or a name), None if unknown. Raises OutOfReach."""
    open_model: Callable[[ModelInfo], Any]
    """Raises RetinueError if the model cannot be asked because its key is missing."""
    hook_table: Callable[[], HookTable]
    max_steps: int
    """For agents without a limit of their own."""
    base_depth: int = 0
    """Depth of the main agent itself, if another agent started it."""


class DispatchTool:
    effect = Effect.DELEGATE
    hint = "Hand a task to a subagent and wait for its answer"
    guidelines: tuple[str, ...] = ()
    spec = ToolSpec(DISPATCH, DESCRIPTION, _PARAMETERS)

    def __init__(self, ports: DispatchPorts) -> None:
        self._ports = ports

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            definition = self._find(arguments["agent"])
            schema = read_output_schema(arguments.get("output_schema"), context.cwd)
            verify = read_verify(arguments.get("verify"), self._ports.caller)
            request = self._to_request(definition, arguments["prompt"], context, schema, verify)
        except UsageError as error:
            return DispatchFailed(FAILED, str(error)).to_result()
        except DispatchFailed as failure:
            return failure.to_result()
        hook_table, profile = self._ports.hook_table(), describe_profile(definition)
        session_id = self._find_session()
        asked = {"sessionId": session_id, "profile": profile, "prompt": request.task, "parentSessionId": session_id}
        decision = await hook_table.decide(SPAWN, asked)
        if decision is not None and decision.word == "deny":
            return deny(DISPATCH, f"Subagent spawn denied: {decision.reason or 'no reason provided'}")
        try:
            run = self._ports.caller.manager.spawn(request, self._ports.caller.run_id)
        except SpawnRefused as error:
            return DispatchFailed(FAILED, str(error)).to_result()
        return await self._follow(run, profile, request)

    def _find(self, name: str) -> Definition:
        """Steps 1 to 3: is dispatching allowed, which agent is meant, may it be run."""
        ports = self._ports
        if not ports.is_enabled():
            raise DispatchFailed(FAILED, "Subagent dispatch is disabled in global settings")
        if ports.caller.depth + ports.base_depth > 0:
            raise DispatchFailed(FAILED, "A subagent cannot dispatch subagents")
        definition = ports.find(name)
        if definition is None:
            raise DispatchFailed(FAILED, f"Unknown subagent: {name}{ports.caller.tell_faults(name)}")
        if not definition.enabled or ports.is_disabled(definition.name):
            reasons = "".join(f"\n{text}" for text in definition.faults)
            raise DispatchFailed(FAILED, f"Subagent '{definition.name}' is disabled{reasons}")
        return definition

    def _to_request(
        self,
        definition: Definition,
        prompt: str,
        context: ToolContext,
        schema: dict[str, Any] | None,
        verify: tuple[str, ...],
    ) -> RunRequest:
        """Step 4: choose the model and build the request."""
        if not prompt.strip():
            raise DispatchFailed(FAILED, "prompt: expected a task, found nothing")
        model = self._find_model(definition)
        return RunRequest(
            agent=definition.name,
            task=prompt,
            description=" ".join(prompt.split())[:60],
            surface="dispatch",
            model=None if model is None else model.info.ref,
            is_model_chosen=model is not None and model.is_chosen,
            isolation="worktree" if definition.isolation == "worktree" else None,
            context=definition.context or "none",
            is_background=False,
            call_id=context.call_id,
            output_schema=schema,
            verify=verify,
            is_verify_judged=bool(verify),
            limits=Limits(
                max_turns=definition.max_turns or self._ports.max_steps,
                tokens=definition.max_tokens_total,
                cost_usd=definition.max_cost,
            ),
        )

    def _find_model(self, definition: Definition) -> ModelChoice | None:
        if not definition.model or definition.is_model_wish or definition.model == "inherit":
            return None
        try:
            model = self._ports.find_model(definition.model)
        except OutOfReach:
            return None  # the run itself warns about it
        if model is None:
            text = f'Subagent profile "{definition.name}" specifies unknown model: {definition.model}'
            raise DispatchFailed(FAILED, text)
        try:
            self._ports.open_model(model.info)
        except RetinueError as error:
            raise DispatchFailed("CONFIG_MISSING", str(error)) from error
        return model

    async def _follow(self, run: Run, profile: dict[str, Any], request: RunRequest) -> ToolResult:
        """Steps 6 to 15: follow the run, notify the hooks, and return its result."""
        manager, hook_table = self._ports.caller.manager, self._ports.hook_table()
        facts: dict[str, Any] = {"sessionId": self._find_session(), "childSessionId": "", "profile": profile}
        most = request.limits.max_turns or 0
        try:
            await self._wait_started(run)
            if (live := manager.live(run.id)) is not None:
                facts["childSessionId"] = live.session.id
                meta = describe_origin(facts["sessionId"], run.agent)
                live.journal.write(lambda: live.session.append_custom(META, meta))
                await hook_table.tell("agent.subagent.spawn.after", facts)
            await manager.wait(run.id)
        except asyncio.CancelledError:
            manager.stop(run.id, Reason.PARENT)
            if hook_table.has("agent.subagent.complete"):
                await manager.wait(run.id, STOP_S)
            raise
        finally:
            await hook_table.tell("agent.subagent.complete", {**facts, **_describe_end(run, most)})
        manager.read(run.id, by_call=request.call_id)
        return render_result(run, most)

    async def _wait_started(self, run: Run) -> None:
        """Wait until the run has a session, or has ended without one."""
        begun = asyncio.Event()

        def hear(event: Event) -> None:
            if event.run_id == run.id and isinstance(event, RunStarted | RunFinished):
                begun.set()

        stop_listening = self._ports.caller.manager.root.bus.listen(hear, pieces=False)
        try:
            await begun.wait()
        finally:
            stop_listening()

    def _find_session(self) -> str:
        caller = self._ports.caller
        live = caller.manager.live(caller.run_id) or caller.manager.root
        return live.session.id


def describe_origin(session_id: str, agent: str) -> dict[str, str]:
    return {"parentSessionId": session_id, "agentName": agent}


def _describe_end(run: Run, max_steps: int) -> dict[str, Any]:
    if run.outcome is None:
        return {"status": "error", "error": "[AGENT_ABORTED] the agent was stopped"}
    failure = explain_failure(run.outcome, max_steps)
    return {"status": "error", "error": failure} if failure else {"status": "done"}
