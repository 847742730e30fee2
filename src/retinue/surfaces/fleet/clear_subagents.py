"""The tool `clear_subagents`: removes finished runs from the list; their files stay."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.run import Run
from retinue.core.tool import ToolContext, ToolResult
from retinue.surfaces.fleet.ports import FleetTool
from retinue.surfaces.fleet.status import ACTIVE, SUCCESSES, to_word
from retinue.tools.registry import load_description

DEFAULT_MINUTES = 5
SHORT_ID = 8


class ClearTool(FleetTool):
    hint = "Drop finished background agents from the list"

    @cached_property
    def spec(self) -> ToolSpec:
        ids = {
            "type": "array",
            "items": {"type": "string"},
            "description": "IDs or unique ID prefixes; age is then ignored",
        }
        minutes = {
            "type": "number",
            "minimum": 0,
            "description": f"Minimum minutes since the agent ended; default {DEFAULT_MINUTES}",
        }
        errors = {"type": "boolean", "description": "Also drop agents that failed or were stopped"}
        properties = {"agent_ids": ids, "older_than_minutes": minutes, "include_errors": errors}
        return ToolSpec("clear_subagents", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        runs, wanted = self._caller.list_runs(), arguments.get("agent_ids")
        if wanted:
            found, errors = match_ids([str(query) for query in wanted], runs)
            kept = list[str]()
        else:
            found, kept = self._pick_old(runs, arguments)
            errors = []
        # Innermost first: a parent can be removed only if its children are done.
        found.sort(key=lambda run: run.depth, reverse=True)
        cleared = [run for run in found if self._caller.manager.forget(run.id)]
        lines = [f"Cleared {len(cleared)} subagent record(s).", *kept]
        if errors:
            lines += ["Errors:", *(f"  {error}" for error in errors)]
        return ToolResult.of("\n".join(lines), {"cleared": [run.id for run in cleared], "errors": errors})

    def _pick_old(self, runs: Sequence[Run], arguments: dict[str, Any]) -> tuple[list[Run], list[str]]:
        minutes = arguments.get("older_than_minutes")
        minutes = DEFAULT_MINUTES if minutes is None else minutes
        limit_ms = self._caller.clock.now_ms() - minutes * 60_000
        active = [run for run in runs if to_word(run) in ACTIVE]
        done = [run for run in runs if to_word(run) not in ACTIVE]
        young = [run for run in done if run.finished_ms > limit_ms]
        old = [run for run in done if run.finished_ms <= limit_ms]
        failed = [run for run in old if to_word(run) not in SUCCESSES]
        if arguments.get("include_errors") is True:
            failed = []
        kept = [
            *_list_kept(active, "running or queued"),
            *_list_kept(young, f"done for less than {minutes:g} minutes"),
            *_list_kept(failed, "failed or stopped; include_errors: true clears them"),
        ]
        return [run for run in old if run not in failed], kept


def match_ids(queries: Sequence[str], runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the finished runs that match ids or unique prefixes of ids, and errors for the rest."""
    found, errors = dict[str, Run](), list[str]()
    for query in dict.fromkeys(queries):
        matches = [run for run in runs if run.id == query] or [
            run for run in runs if query and run.id.startswith(query)
        ]
        if not matches:
            errors.append(f"{_show(query)} not found")
        elif len(matches) > 1:
            errors.append(f"{_show(query)} matched multiple agents: {', '.join(run.id[:SHORT_ID] for run in matches)}")
        elif to_word(matches[0]) in ACTIVE:
            errors.append(f"{_show(query)} matched running agent {matches[0].id}")
        else:
            found[matches[0].id] = matches[0]
    return list(found.values()), errors


def _show(query: str) -> str:
    return query if query.isprintable() and 0 < len(query) <= 40 else quote(query)


def _list_kept(runs: Sequence[Run], why: str) -> list[str]:
    if not runs:
        return []
    return [f"Kept {len(runs)} ({why}): {', '.join(run.id[:SHORT_ID] for run in runs)}"]
