"""The fleet as a surface: its tools, and its words for requests, results and notifications."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from retinue.core.definition import Definition
from retinue.core.messages import CustomMessage
from retinue.core.run import Run
from retinue.core.tool import Tool, ToolResult
from retinue.engine.request import RunRequest
from retinue.surfaces.fleet.agent import AgentTool
from retinue.surfaces.fleet.clearing import ClearTool
from retinue.surfaces.fleet.listing import ListTool
from retinue.surfaces.fleet.model_list import ModelsTool
from retinue.surfaces.fleet.notification import render_notification
from retinue.surfaces.fleet.ports import FleetPorts
from retinue.surfaces.fleet.request import AgentCall, pick_model, to_request
from retinue.surfaces.fleet.result import ResultTool, render_body
from retinue.surfaces.fleet.retries import RetryBook
from retinue.surfaces.fleet.status import to_word
from retinue.surfaces.fleet.steer import SteerTool
from retinue.surfaces.names import SURFACE_TOOLS

TOOL_NAMES = SURFACE_TOOLS["fleet"]


def build_fleet_tools(ports: FleetPorts) -> list[Tool]:
    """The six tools of one run, in the order they are shown."""
    shared = ports if ports.retries is not None else replace(ports, retries=RetryBook(ports.seat.clock))
    return [
        AgentTool(shared),
        ResultTool(shared),
        SteerTool(shared),
        ListTool(shared),
        ClearTool(shared),
        ModelsTool(shared),
    ]


def map_fleet_tools(ports: FleetPorts) -> dict[str, Tool]:
    """The same by name, without asking for their descriptions: the Manager may not exist yet."""
    return dict(zip(TOOL_NAMES, build_fleet_tools(ports), strict=True))


class FleetSurface:
    """The surface for the run whose ports it is given."""

    def __init__(self, ports: FleetPorts) -> None:
        self._ports = ports

    def to_request(self, arguments: Mapping[str, Any], definition: Definition) -> RunRequest:
        """What a call of `Agent` amounts to. Raises BadModel."""
        call, seat, settings = AgentCall.of(arguments), self._ports.seat, self._ports.settings
        pick = pick_model(
            call,
            definition,
            parent=seat.model,
            resolve=seat.resolve_model,
            models=seat.list_models(),
            scope=settings.model_scope,
        )
        return to_request(call, definition, pick, settings, parent=seat.model)

    def render_result(self, run: Run) -> ToolResult:
        """A run as `get_subagent_result` shows it; reading it this way does not count."""
        text = f"{ResultTool(self._ports).render_head(run)}\n\n{render_body(run)}"
        return ToolResult.of(text, {"agentId": run.id, "status": to_word(run), "description": run.description})

    def render_notification(self, runs: Sequence[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
        """What the parent of these runs is told."""
        now_ms = self._ports.seat.clock.now_ms()
        return render_notification(runs, self._ports.measure, now_ms=now_ms, is_group=is_group, is_partial=is_partial)

    def build_tools(self) -> list[Tool]:
        """Fresh tools for the run."""
        return build_fleet_tools(self._ports)
