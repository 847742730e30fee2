"""The tool `list_subagents`: lists the runs of the caller."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.run import Run
from retinue.core.tool import ToolContext, ToolResult
from retinue.surfaces.fleet.ports import FleetTool
from retinue.surfaces.fleet.request import DEFAULT_AGENT
from retinue.surfaces.fleet.status import ACTIVE, SUCCESSES, describe_machines, to_word
from retinue.tools.registry import load_description

SHOWN_SUCCESSES = 2


class ListTool(FleetTool):
    hint = "List the background agents of this session"

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {"all": {"type": "boolean", "description": "Also all that are done"}}
        return ToolSpec("list_subagents", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        runs = self._caller.list_runs()
        shown = pick_rows(runs, everything=arguments.get("all") is True)
        hidden = len(runs) - len(shown)
        lines = [f"{len(shown)} visible of {len(runs)} retained subagents.", *map(render_row, shown)]
        if hidden:
            lines.append(f"{hidden} done {'agent is' if hidden == 1 else 'agents are'} hidden; all: true shows them.")
        details: dict[str, Any] = {"visible": len(shown), "total": len(runs)}
        details |= describe_machines(shown)
        return ToolResult.of("\n".join(lines), details)


def pick_rows(runs: Sequence[Run], *, everything: bool = False) -> list[Run]:
    """Return active runs, failed runs and the newest successful ones; each group newest first."""
    ordered = sorted(runs, key=lambda run: run.finished_ms or run.started_ms or run.queued_ms, reverse=True)
    active = [run for run in ordered if to_word(run) in ACTIVE]
    failed = [run for run in ordered if to_word(run) not in ACTIVE | SUCCESSES]
    done = [run for run in ordered if to_word(run) in SUCCESSES]
    return [*active, *failed, *(done if everything else done[:SHOWN_SUCCESSES])]


def render_row(run: Run) -> str:
    """Return `id | type | status | description`."""
    agent = "general" if run.agent == DEFAULT_AGENT else run.agent
    waits = "".join(f" (waits for an answer to {question.id})" for question in run.questions)
    return " | ".join((run.id, agent, f"{to_word(run)}{waits}", run.description))
