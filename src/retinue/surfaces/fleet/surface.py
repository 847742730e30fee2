"""The fleet as a surface: its tools, and its words for requests, results and notifications."""

from dataclasses import replace

from retinue.core.tool import Tool
from retinue.surfaces.fleet.agent import AgentTool
from retinue.surfaces.fleet.clear_subagents import ClearTool
from retinue.surfaces.fleet.list_subagents import ListTool
from retinue.surfaces.fleet.model_list import ModelsTool
from retinue.surfaces.fleet.ports import FleetPorts, RetryBook
from retinue.surfaces.fleet.result import ResultTool
from retinue.surfaces.fleet.steer import SteerTool
from retinue.surfaces.names import SURFACE_TOOLS

TOOL_NAMES = SURFACE_TOOLS["fleet"]


def build_fleet_tools(ports: FleetPorts) -> list[Tool]:
    """The six tools of one run, in the order they are shown."""
    shared = ports if ports.retries is not None else replace(ports, retries=RetryBook(ports.caller.clock))
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
