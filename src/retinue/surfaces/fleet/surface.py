"""The tools of the fleet for one run."""

from dataclasses import replace

from retinue.core.tool import Tool
from retinue.surfaces.fleet.ports import FleetPorts, RetryBook
from retinue.tools.registry import build_family


def map_fleet_tools(ports: FleetPorts) -> dict[str, Tool]:
    """By name, without asking for their descriptions: the Manager may not exist yet."""
    shared = ports if ports.retries is not None else replace(ports, retries=RetryBook(ports.caller.clock))
    return build_family("fleet", shared)
