"""The tool `steer_subagent`: sends a message to a queued or working run."""

from functools import cached_property
from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.tool import ToolContext, ToolResult
from retinue.surfaces.fleet.ports import FleetTool, Refusal, tell_missing
from retinue.surfaces.fleet.status import render_state, to_word
from retinue.tools.registry import load_description


class SteerTool(FleetTool):
    hint = "Send a message to a running background agent"

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "agent_id": {"type": "string", "description": "The whole ID, as Agent returned it"},
            "message": {"type": "string", "minLength": 1, "description": "The message it gets before its next reply"},
        }
        parameters = {"type": "object", "properties": properties, "required": ["agent_id", "message"]}
        return ToolSpec("steer_subagent", load_description(__file__), parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        run_id, message = str(arguments.get("agent_id", "")).strip(), str(arguments.get("message", ""))
        caller, run = self._caller, self._caller.find_run(run_id)
        if run is None:
            return Refusal(tell_missing(run_id)).to_result()
        details = {"agentId": run.id, "status": to_word(run)}
        has_begun = caller.manager.live(run.id) is not None
        if has_begun and not caller.manager.hears(run.id):
            text = f'Agent "{run.id}" works in a process of its own, which accepts no messages. '
            return Refusal(f"{text}Wait for its result, then resume it with your message.").to_result()
        if not caller.manager.steer(run.id, message):
            text = f'Agent "{run.id}" is not running (status: {to_word(run)}). Cannot steer a non-running agent.'
            return Refusal(text).to_result()
        if not has_begun:
            text = f"Steering message queued for agent {run.id}. It will be delivered once the session initializes."
            return ToolResult.of(text, details)
        state = render_state(run, self._ports.measure(run))
        sent = f"Steering message sent to agent {run.id}. The agent reads it before its next reply."
        return ToolResult.of(f"{sent}\nCurrent state: {state}", details)
