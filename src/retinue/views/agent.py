"""Text about one agent for `retinue agents show` and the agents menu; also lets a model write an agent file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.errors import RetinueError
from retinue.core.run import Status
from retinue.core.terminal import escape_line, escape_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retinue.views.runs import Handle


def render_details(about: dict[str, Any]) -> str:
    """Render an agent's fields, its tools with the reasons for refused ones, and diagnostics; escaped for terminals."""
    lines = [f"{about['name']}  ({about['source']}, {about['dialect']})", f"  {about['path']}"]
    if not about["enabled"]:
        lines.append("  disabled: it cannot be run")
    lines += [f"  listed together with {', '.join(about['aliases'])}"] if about["aliases"] else []
    lines += ["", "fields"]
    for field in about["fields"]:
        lines.append(f"  {field['line'] or '':>4}  {escape_line(field['text'], 100)}  [{field['status']}]")
        if field["note"]:
            lines.append(f"        {escape_line(field['note'], 300)}")
    for surfaces, answer in _group_surfaces(about):
        lines += ["", *_render_tools(surfaces, answer, about)]
    wish = about["wishedModel"]
    remark = "" if not wish else " (preferred)" if about["model"] else f" ({wish} is preferred but not available)"
    inherited = "the caller's"
    lines += ["", f"model     {about['model'] or inherited}{remark}", f"thinking  {about['thinking'] or inherited}"]
    lines.append(f"turns     {'no limit' if not about['maxTurns'] else about['maxTurns']}")
    lines.append(f"prompt    {about['promptMode']}, {len(about['prompt'].splitlines())} lines")
    lines += [f"hides     {path}" for path in about["shadows"]]
    if about["diagnostics"]:
        lines += ["", "remarks"]
        lines += [f"  {item['severity']}: {escape_line(item['message'], 400)}" for item in about["diagnostics"]]
    return escape_text("\n".join(lines))


def render_surfaces(surfaces: Sequence[str]) -> str:
    return ", ".join("subagent (retinue run)" if name == "subagent" else name for name in surfaces)


def _group_surfaces(about: dict[str, Any]) -> list[tuple[list[str], dict[str, Any]]]:
    """Group surfaces that give the same answer. For another agent of the same name, compare only name and path."""
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for answer in about["surfaces"]:
        is_other = answer["path"] != about["path"]
        rest = {key: answer[key] for key in (("agent", "path") if is_other else answer) if key != "surface"}
        same = next((names for names, other in groups if other == rest), None)
        if same is None:
            groups.append(([answer["surface"]], rest))
        else:
            same.append(answer["surface"])
    return groups


def _render_tools(surfaces: list[str], answer: dict[str, Any], about: dict[str, Any]) -> list[str]:
    """Render the tools that the agent's next run gets on these surfaces, as a child of the main agent."""
    where = f"on {render_surfaces(surfaces)}"
    if answer["path"] != about["path"]:
        return [f"{where} this name means {answer['agent']}  ({answer['path']})"]
    if answer["off"]:
        return [f"{where} it cannot be run: {escape_line(answer['off'], 400)}"]
    lines = [f"tools {where}, as a child of the main agent"]
    given = [f"{tool['name']}{_render_target(tool)}" for tool in answer["allowed"]]
    lines += [f"  + {escape_line(text, 200)}" for text in (*given, *answer["elsewhere"])] or ["  none"]
    lines += [f"  - {tool['name']}: {escape_line(tool['reason'], 400)}" for tool in answer["refused"]]
    return lines + [f"  ! {escape_line(text, 200)}" for text in answer["warnings"]]


def _render_target(tool: dict[str, str]) -> str:
    return f" (is {tool['tool']})" if tool["tool"] != tool["name"] else ""


AUTHOR = "general-purpose"
MAX_TURNS = 5
_TASK = """Write the definition of a new agent called {name}. It is for this:

<purpose>
{purpose}
</purpose>

Answer with the text of the file and nothing else; do not write any file yourself, and use tools only if you must look
at this project to write good instructions. The file is Markdown with YAML frontmatter:

---
name: {name}
description: when to use this agent, in one sentence
tools: read, grep, find, ls
---

Instructions for the agent: its role, how it works on a task, what its report contains, what it must not do.

Fields you may add: `model`, `thinking` (off, minimal, low, medium, high, xhigh), `max_turns`, `readonly: true`. These
tools exist: {tools}. Give it only those it needs; leave out `bash`, `edit` and `write` unless its purpose needs them.
"""


async def write_agent(spawn: "Callable[..., Awaitable[Handle]]", name: str, purpose: str) -> str:
    """Start an agent with `spawn` that writes the text of an agent file; saves nothing. Raises RetinueError."""
    from retinue.core.tool_table import BUILTIN_TOOLS
    from retinue.settings.agent_files import find_agent_file

    task = _TASK.format(name=name, purpose=purpose.strip(), tools=", ".join(BUILTIN_TOOLS))
    run = await spawn(AUTHOR, task, description=f"write agent {name}", max_turns=MAX_TURNS)
    try:
        outcome = await run.wait()
    except BaseException:
        await run.stop()
        raise
    if outcome.status is not Status.COMPLETED:
        raise RetinueError(f"the agent that should write it failed: {outcome.error or outcome.reason}")
    text = find_agent_file(outcome.text)
    if not text:
        raise RetinueError("the agent's answer contains no agent file; try again, or write the file yourself")
    return text
