"""The tool `Agent`: starts a run in the background, resumes one, or schedules one."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import ContextMode, Definition
from retinue.core.errors import IsolationFailed, ModelError, RetinueError, UsageError, quote
from retinue.core.messages import THINKING_LEVELS, TextContent
from retinue.core.model import ToolSpec
from retinue.core.run import Run
from retinue.core.tool import ToolContext, ToolResult
from retinue.engine.admission import SpawnRefused
from retinue.surfaces.base import OUTPUT_SCHEMA, VERIFY, read_output_schema, read_verify
from retinue.surfaces.fleet.describe import choose_agent, describe_agent, pick_available
from retinue.surfaces.fleet.ports import FailedCalls, FleetPorts, FleetTool, Refusal, tell_missing
from retinue.surfaces.fleet.request import (
    DEFAULT_AGENT,
    AgentCall,
    BadModel,
    ModelSelection,
    explain_context,
    pick_model,
    render_tags,
    to_request,
)
from retinue.surfaces.fleet.status import name_agent

NOTICE = (
    "You will be notified when it is done; until then do other work and do not do this task yourself. "
    "get_subagent_result shows how far it is or waits for it, steer_subagent says something to it."
)
NO_NOTICE = (
    "Until it is done do other work and do not do this task yourself. You are not notified of its end: "
    "get_subagent_result with wait: true waits for it, steer_subagent says something to it."
)
_PROMPT_SHOWN = 100


class _ResolvedCall(Struct, frozen=True):
    """One call with its retry handle resolved."""

    call: AgentCall
    arguments: dict[str, Any]
    handle: str | None


class AgentTool(FleetTool):
    hint = "Start an agent in the background"

    def __init__(self, ports: FleetPorts) -> None:
        super().__init__(ports)
        self._retries = ports.retries or FailedCalls(ports.caller.clock)

    @cached_property
    def spec(self) -> ToolSpec:
        """Fixed for the life of a run: a changed description would invalidate the cached prompt."""
        caller, settings = self._caller, self._ports.settings
        available = pick_available(caller.definitions(), caller.allowed_agents)
        bounds = caller.manager.admission.bounds
        missing = {each.name for each in available if not self._has_model(each)}
        described = describe_agent(settings, available, missing, depth=caller.depth, max_depth=bounds.max_depth)
        for warning in described.warnings:
            caller.warn(warning)
        schema = {"type": "object", "properties": _list_parameters(settings.scheduling), "additionalProperties": True}
        return ToolSpec("Agent", described.text, schema)

    def _has_model(self, definition: Definition) -> bool:
        try:
            return not definition.model or bool(self._caller.resolve_model(definition.model))
        except ModelError:
            return False

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        result = await self._call(arguments, context)
        if unknown := AgentCall.list_unknown(arguments):
            names = ", ".join(quote(name, 40) for name in unknown[:10])
            result.content.append(TextContent(f"Ignored, since Agent has no such argument: {names}."))
        return result

    async def _call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            asked = self._merge(arguments, context.cwd)
            _show_prompt(asked.call, context)
            definition, note = self._find_definition(asked)
            pick = self._pick_model(asked, definition)
            if asked.call.schedule:
                return self._schedule(asked.call, definition, pick.note)
            if asked.call.resume:
                return self._resume(asked.call)
            return await self._spawn(asked, definition, pick, note, context)
        except Refusal as refusal:
            return refusal.to_result()

    def _merge(self, arguments: Mapping[str, Any], cwd: Path) -> _ResolvedCall:
        given = {name: value for name, value in arguments.items() if value is not None}
        handle = str(given.pop("retry", "")).strip() or None
        if handle is not None:
            saved = self._retries.find(handle)
            if saved is None:
                raise Refusal(f'Retry handle "{handle}" was not found or has expired.')
            given = {**saved, **{name: value for name, value in given.items() if value != ""}}
        call = AgentCall.of(given)
        if not call.prompt.strip():
            raise Refusal("Missing required argument: prompt.")
        try:
            verify = read_verify(call.verify, self._caller)
            call = replace(call, output_schema=read_output_schema(call.output_schema, cwd), verify=verify)
        except UsageError as error:
            raise Refusal(str(error)) from error
        if call.verify and (call.resume or call.schedule):
            why = "a resumed run keeps its own" if call.resume else "write it into the agent's file"
            raise Refusal(f"verify and {'resume' if call.resume else 'schedule'} do not go together: {why}.")
        return _ResolvedCall(call, given, handle)

    def _find_definition(self, asked: _ResolvedCall) -> tuple[Definition, str]:
        """Return the requested agent, and a note if another one is used."""
        call, name = asked.call, asked.call.subagent_type
        if not name and call.resume and (run := self._caller.find_run(call.resume)) is not None:
            name = run.agent
        name = name or DEFAULT_AGENT
        try:
            found = choose_agent(name, self._caller, self._ports.settings.fallback_agent)
        except UsageError as error:
            raise self._keep(asked, str(error), "subagent_type") from error
        if found.name.casefold() == name.casefold():
            return found, ""
        return found, f'Note: there is no agent type "{name}"; {found.name} was started instead.'

    def _pick_model(self, asked: _ResolvedCall, definition: Definition) -> ModelSelection:
        caller = self._caller
        try:
            pick = pick_model(
                asked.call,
                definition,
                parent=caller.model,
                resolve=caller.resolve_model,
                list_models=caller.list_models,
                scope=self._ports.settings.model_scope,
            )
        except BadModel as error:
            raise self._keep(asked, str(error), "model") from error
        if pick.is_out_of_scope:
            label = definition.display_name or definition.name
            caller.warn(f'Agent "{label}" using out-of-scope model "{pick.info.ref}"')
        return pick

    def _schedule(self, call: AgentCall, definition: Definition, remark: str) -> ToolResult:
        if not self._ports.settings.scheduling:
            raise Refusal("Scheduling is disabled in this project (schedulingEnabled).")
        if call.resume:
            raise Refusal("schedule and resume do not go together: a scheduled run always begins anew.")
        given = "inherit_context" if call.inherit_context else "context" if call.context not in (None, "none") else ""
        if given:
            raise Refusal(f"schedule and {given} do not go together: there is no conversation when it fires.")
        if self._ports.schedule is None:
            raise Refusal("Scheduler is not active in this session yet. Try again after the session has started.")
        # Values that the agent file fixes are not stored: the file is read again when the job fires.
        is_pinned = bool(definition.model) and not definition.is_model_wish
        try:
            job = self._ports.schedule(
                call.schedule,
                name=call.description,
                subagent_type=definition.name,
                prompt=call.prompt,
                model=None if is_pinned else call.model or None,
                thinking=call.thinking or None,
                max_turns=call.max_turns,
                isolated=call.isolated,
                isolation=call.isolation if call.isolation == "worktree" else None,
                output_schema=call.output_schema,
                max_tokens_total=call.max_tokens_total,
                max_cost=call.max_cost,
                # What the run may use that asks for it, and its depth: the scheduled run gets no more and is deeper.
                grant=self._caller.grant,
                depth=self._caller.depth or None,
            )
        except RetinueError as error:
            raise Refusal(str(error)) from error
        next_run = job.next_run or "(unknown)"
        text = f'Scheduled "{job.name}" (id: {job.id}, type: {job.kind}). Next run: {next_run}.'
        lines = [f"{text} Manage via /agents → Scheduled jobs.", *filter(None, (job.note, remark))]
        return ToolResult.of("\n".join(lines), {"status": "scheduled", "jobId": job.id, "nextRun": job.next_run})

    def _resume(self, call: AgentCall) -> ToolResult:
        caller, run = self._caller, self._caller.find_run(call.resume)
        if run is None:
            raise Refusal(tell_missing(call.resume))
        if run.parent_id != caller.run_id:
            # Its report would go to the run that started it, which may have ended.
            raise Refusal(f'Agent "{run.id}" belongs to agent "{run.parent_id}": only that one can resume it.')
        kept = run.outcome.session_file if run.outcome is not None else ""
        if kept and not Path(kept).is_file():
            raise Refusal(f'Agent "{run.id}" has no active session to resume.')
        is_full = caller.manager.is_full(run.parent_id)
        try:
            again = caller.manager.resume(run.id, call.prompt)
        except SpawnRefused as error:
            raise Refusal(str(error)) from error
        lines = ["Agent resumed in background.", *_introduce(again)]
        return self._answer(again, lines, is_full=is_full)

    async def _spawn(
        self, asked: _ResolvedCall, definition: Definition, pick: ModelSelection, note: str, context: ToolContext
    ) -> ToolResult:
        caller = self._caller
        try:
            request = to_request(
                asked.call,
                definition,
                pick,
                self._ports.settings,
                parent=caller.model,
                call_id=context.call_id,
            )
        except UsageError as error:
            raise Refusal(str(error)) from error
        if request.isolation == "worktree" and self._ports.check_worktree is not None:
            try:
                await self._ports.check_worktree(context.cwd)
            except RetinueError as error:
                is_whole = isinstance(error, IsolationFailed)
                text = str(error) if is_whole else f'Cannot run with isolation: "worktree": {error}'
                raise self._keep(asked, text, "isolation") from error
        is_full = caller.manager.is_full(caller.run_id)
        try:
            run = caller.manager.spawn(request, caller.run_id)
        except SpawnRefused as error:
            raise Refusal(str(error)) from error
        lines = [f"Agent {'queued' if is_full else 'started'} in background.", *_introduce(run)]
        if run.output_file:
            lines.append(f"Output file: {run.output_file}")
        if asked.call.output_schema is not None and definition.output_schema is not None:
            lines.append(f"Note: {definition.name} has an output_schema of its own, which is used.")
        notes = (note, pick.note, explain_context(request, asked.call, definition, caller.model))
        return self._answer(run, [*lines, *filter(None, notes)], is_full=is_full)

    def _answer(self, run: Run, lines: list[str], *, is_full: bool) -> ToolResult:
        if is_full:
            lines.append(f"Position: queued (max {self._caller.manager.max_concurrent} concurrent)")
        lease = self._caller.lease
        if lease is not None and lease.is_limited:
            lines.append(f"Budget left: {lease.render_rest()}")
        details: dict[str, Any] = {
            "displayName": name_agent(run),
            "description": run.description,
            "subagentType": run.agent,
            "tags": render_tags(run.invocation),
            "status": "background",
            "agentId": run.id,
        }
        if is_full:
            details["isQueued"] = True
        if "modelName" in run.invocation:
            details["modelName"] = run.invocation["modelName"]
        return ToolResult.of("\n".join((*lines, "", NOTICE if self._ports.settings.notifies else NO_NOTICE)), details)

    def _keep(self, asked: _ResolvedCall, text: str, kind: Literal["model", "subagent_type", "isolation"]) -> Refusal:
        """Save the call for a retry and return a refusal that says how to make it."""
        kept = {name: value for name, value in asked.arguments.items() if (name, kind) != ("isolation", "isolation")}
        handle = self._retries.save(kept, asked.handle)
        blank = {"model": ', "model": "<model>"', "subagent_type": ', "subagent_type": "<type>"', "isolation": ""}[kind]
        hint = f'The prompt was saved: call Agent again with {{ "retry": "{handle}"{blank} }} (within 10 minutes).'
        if kind == "isolation":
            hint += ' It then runs without isolation; add "isolation": "worktree" to ask for it again.'
        return Refusal(f"{text}\n\n{hint}")


def _introduce(run: Run) -> list[str]:
    return [f"Agent ID: {run.id}", f"Type: {name_agent(run)}", f"Description: {run.description}"]


def _show_prompt(call: AgentCall, context: ToolContext) -> None:
    shown = call.prompt[-_PROMPT_SHOWN:]
    details = {"status": "background", "description": call.description, "activity": f"Prompt: {shown}"}
    context.progress(ToolResult.of("", details))


def _list_parameters(scheduling: bool) -> dict[str, Any]:
    text = {"type": "string"}
    parameters: dict[str, Any] = {
        "prompt": {**text, "description": "The whole task. Required, unless retry is given"},
        "description": {**text, "description": "The task in 3 to 5 words; default: the first of the prompt"},
        "subagent_type": {**text, "description": f"Which agent; default {DEFAULT_AGENT}"},
        "model": {**text, "description": "provider/id or a part of a model's name; default: the agent's, else yours"},
        "thinking": {**text, "enum": list(THINKING_LEVELS), "description": "How much it thinks"},
        "max_turns": {"type": "integer", "minimum": 1, "description": "Turns until it is asked to wrap up"},
        "max_tokens_total": {"type": "integer", "minimum": 1, "description": "Tokens it may use, its own agents' too"},
        "max_cost": {"type": "number", "minimum": 0, "description": "US dollars it may cost, likewise"},
        "retry": {**text, "description": "Handle of a refused call; other arguments replace the saved ones"},
        "resume": {**text, "description": "ID of a finished agent to resume with this prompt"},
        "isolated": {"type": "boolean", "description": "No extensions, MCP tools or skills"},
        "context": {
            **text,
            "enum": list(get_args(ContextMode)),
            "description": "Of this conversation it gets: none, summary (what was said), fork (all, from the cache)",
        },
        "inherit_context": {"type": "boolean", "description": "true: the same as context summary"},
        "isolation": {**text, "enum": ["off", "worktree"], "description": "worktree: work on a copy of the repository"},
        "output_schema": OUTPUT_SCHEMA,
        "verify": VERIFY,
    }
    if scheduling:
        parameters["schedule"] = {**text, "description": "Start later: cron with seconds, 5m, +10m or an ISO time"}
    return parameters
