"""A program that the conformance suite starts as a client: it calls the tools of a server with retinue's MCP client."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from retinue.core.run import Question
from retinue.core.tool import ToolContext
from retinue.engine.clock import SystemClock
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.pool import ServerPool
from retinue.features.mcp.server import McpServer
from retinue.tools.process_tree import TreeProbe

SAMPLES: dict[str, Any] = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


def make_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a value for each argument."""
    return {name: SAMPLES.get(str(field.get("type")), "text") for name, field in schema.get("properties", {}).items()}


async def answer(question: Question) -> str | None:
    """A user who accepts what is proposed."""
    return question.options[0] if question.options else ""


async def main(url: str) -> int:
    told: list[str] = []
    wished = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls") or []
    around = ServerContext(Path.cwd(), dict(os.environ), TreeProbe(), "1", told.append, initialise_s=60, ask=answer)
    server = McpServer("suite", url=url, timeout_s=20)
    async with ServerPool([server], McpOpener(around), SystemClock(), told.append) as pool:
        pool.lease(["suite"])
        tools = {
            tool.spec.name.removeprefix("mcp__suite__"): tool
            for tool in (await pool.list_tools(["suite"], 60)).values()
        }
        calls = [(call["name"], call["arguments"]) for call in wished]
        for name, arguments in calls or [(name, make_arguments(tool.spec.parameters)) for name, tool in tools.items()]:
            if name == "json_schema_echo":
                arguments = {"schema": tools["json_schema_2020_12_tool"].spec.parameters}
            result = await tools[name].call(arguments, ToolContext(Path.cwd()))
            print(name, result.content)
    print(*told, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
