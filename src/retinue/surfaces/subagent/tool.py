"""The tool `subagent`: runs an agent in the foreground and returns its result."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from retinue.core.definition import Definition
from retinue.core.messages import TextContent
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.surfaces.base import OUTPUT_SCHEMA, VERIFY
from retinue.surfaces.subagent.call import check_call, make_call
from retinue.surfaces.subagent.result import SubagentCall, SubagentPorts, SubagentSettings, is_failure, render_error
from retinue.tools.policy import OFFERS, Terms, decide_tools, reads_only

MAX_LISTED = 60
MAX_DESCRIPTION_CHARS = 200
_HERE = Path(__file__).parent


class SubagentTool:
    effect = Effect.DELEGATE
    hint = "Give one bounded task to an agent and wait for what it finds"
    guidelines = (
        "Give a subagent one concrete objective and all it needs to know; it has not seen this conversation.",
    )

    def __init__(self, ports: SubagentPorts) -> None:
        self._ports = ports

    @cached_property
    def spec(self) -> ToolSpec:
        """Fixed for the life of a run: a changed description would invalidate the cached prompt."""
        template = (_HERE / "tool.md").read_text(encoding="utf-8").strip()
        caller = self._ports.caller
        agents = [each for each in caller.definitions() if each.enabled and caller.may_start(each.name)]
        listed = list_agents(agents, self._ports.settings)
        return ToolSpec("subagent", template.replace("{{agents}}", listed), _PARAMETERS)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        call = SubagentCall(
            agent=arguments["agent"],
            task=arguments["task"],
            session_id=(arguments.get("sessionId") or "").strip() or None,
            call_id=context.call_id,
            output_schema=arguments.get("output_schema"),
            verify=arguments.get("verify"),
            is_verify_judged=True,
        )
        result = await make_call(call, self._ports, lambda partial: context.progress(_to_tool_result(partial)))
        return _to_tool_result(result, is_error=is_failure(result))

    def refuse(self, arguments: Mapping[str, Any], problem: str) -> ToolResult:
        """Return the result for invalid arguments, with the same order of checks and the same shape."""
        given = (arguments.get("agent"), arguments.get("task"))
        agent, task = ("" if value is None else str(value) for value in given)
        refusal = check_call(SubagentCall(agent, task), self._ports)
        return _to_tool_result(refusal or render_error("INVALID_INPUT", problem), is_error=True)


def list_agents(agents: Sequence[Definition], settings: SubagentSettings) -> str:
    """Return one line per agent: what it is for, and whether it is read-only."""
    lines = [_render_agent(each, settings) for each in agents[:MAX_LISTED]]
    if len(agents) > MAX_LISTED:
        lines.append(f"- … and {len(agents) - MAX_LISTED} more")
    return "\n".join(lines) or "- (none: put one into .pi/agents)"


def _render_agent(definition: Definition, settings: SubagentSettings) -> str:
    text = " ".join((definition.description or definition.name).split())
    text = text if len(text) <= MAX_DESCRIPTION_CHARS else f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"
    terms = Terms(available=OFFERS, allow_write=settings.allow_write)
    marks = ["read-only"] if reads_only(decide_tools(definition, terms)) else []
    marks += ["can be continued by sessionId"] if definition.completion == "finalize" else []
    mark = f" ({', '.join(marks)})" if marks else ""
    return f"- {definition.name}{mark}: {text}"


def _to_tool_result(result: dict[str, Any], *, is_error: bool = False) -> ToolResult:
    content = [TextContent(item["text"]) for item in result["content"]]
    return ToolResult(list(content), result["details"], is_error)


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent"},
        "task": {"type": "string", "minLength": 1, "description": "The whole task, in its own words"},
        "sessionId": {
            "type": "string",
            "description": "Continue the session of an earlier call of the same agent; leave out to begin anew",
        },
        "output_schema": OUTPUT_SCHEMA,
        "verify": VERIFY,
    },
    "required": ["agent", "task"],
    "additionalProperties": False,
}


SPECIALTIES = {
    "explorer": "finding things in the code: where something is, how parts are connected",
    "researcher": "sources outside the repository: searching, comparing, summarising",
    "reviewer": "reviewing code: faults, risks, design",
    "implementer": "planning a change step by step",
    "tester": "what to test and how: strategy, edge cases, gaps in the coverage",
}
EXAMPLES = (
    ("Where do we check permissions?", "explorer"),
    ("找出所有读取配置文件的地方", "explorer"),
    ("Which of these two libraries is better maintained?", "researcher"),
    ("帮我检查一下这个模块的代码质量", "reviewer"),
    ("How would we add rate limiting here?", "implementer"),
    ("这个函数还缺哪些边界情况的测试?", "tester"),
)


def render_policy(agents: Collection[str]) -> str:
    """Return a prompt section about the available specialist agents; empty if there are none."""
    known = {name: text for name, text in SPECIALTIES.items() if name in agents}
    if not known:
        return ""
    lines = [
        "## Subagent Delegation Policy",
        "",
        "When a request, or a part of it, is the specialty of an agent, prefer to give it to that agent by `subagent`:",
        *(f"- {name}: {text}" for name, text in known.items()),
        "",
        "Delegate tasks that are focused and can be described in a few sentences. Do simple tasks yourself.",
        "",
        "## Delegation Examples",
        "",
        *(f"- {request} → {name}" for request, name in EXAMPLES if name in known),
    ]
    return "\n".join(lines)
