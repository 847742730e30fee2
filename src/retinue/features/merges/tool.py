"""The tool `land_branches`: the main agent lands branches of its agents. Must not know how a person is asked."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.merge_report import LandRequest, MergeReport, describe_report, render_report
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.registry import load_description


class LandTool:
    effect = Effect.EXECUTE
    hint = "Land the branches of agents on the current branch, verified"
    guidelines: tuple[str, ...] = ()
    waits = True

    def __init__(self, land: Callable[[LandRequest], Awaitable[MergeReport]]) -> None:
        """`land` asks a person if that is needed. Raises RetinueError."""
        self._land = land

    @cached_property
    def spec(self) -> ToolSpec:
        names = {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 200}
        properties = {
            "branches": {**names, "description": "Local branches; in a conflict the earlier one wins"},
            "all": {"type": "boolean", "description": "All branches of agents that have not landed"},
            "onto": {"type": "string", "description": "The branch to land on; default: the one that is checked out"},
            "dry_run": {"type": "boolean", "description": "Merge and check, but change nothing"},
        }
        return ToolSpec("land_branches", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        asked = LandRequest(
            tuple(arguments.get("branches") or ()),
            takes_all=bool(arguments.get("all")),
            onto=str(arguments.get("onto") or ""),
            is_dry=bool(arguments.get("dry_run")),
        )
        try:
            report = await self._land(asked)
        except RetinueError as error:
            raise ToolFailed(str(error)) from None
        return ToolResult.of(context.redact("\n".join(render_report(report))), describe_report(report))
