"""MCP servers as small programs that speak the protocol by hand, well or badly, and a pool that uses them."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from retinue.core.tool import ToolContext
from retinue.engine.clock import SystemClock
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.pool import ServerPool
from retinue.features.mcp.server import McpServer
from retinue.tools.process_tree import TreeProbe

PROGRAM = """
import json, os, sys, time

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def answer(message, result):
    send(id=message["id"], result=result)

def say(message, *texts, **more):
    answer(message, {"content": [{"type": "text", "text": text} for text in texts], **more})

def tool(name, description="Says it.", **properties):
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}

TOOLS = [tool("hi")]
VERSION = "2025-06-18"

def initialize(message):
    info = {"name": "raw", "version": "1"}
    answer(message, {"protocolVersion": VERSION, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info})

def listing(message):
    answer(message, {"tools": TOOLS})

def call(message):
    say(message, "hello")

def other(message):
    pass

#EXTRA#

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        initialize(message)
    elif method == "tools/list":
        listing(message)
    elif method == "tools/call":
        call(message)
    elif method and "id" in message:
        send(id=message["id"], error={"code": -32601, "message": "no such method"})
    else:
        other(message)
"""


class World:
    """A folder with servers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.servers: list[McpServer] = []
        self.told: list[str] = []
        self.environment = dict(os.environ)

    def add(self, name: str = "raw", extra: str = "", **fields) -> McpServer:
        """A server with some of its functions replaced."""
        path = self.root / f"{name}.py"
        path.write_text(PROGRAM.replace("#EXTRA#", dedent(extra)))
        fields.setdefault("args", ("-I", "-S", str(path)))
        self.servers.append(McpServer(name, sys.executable, **fields))
        return self.servers[-1]

    @asynccontextmanager
    async def open(self, clock=None, initialise_s: float = 5.0, tree=None, ask=None):
        """The pool of the servers, every one of them leased."""
        trees = TreeProbe(kind=tree) if tree else TREES
        around = ServerContext(self.root, self.environment, trees, "1", self.told.append, initialise_s=initialise_s)
        around = replace(around, ask=ask)
        async with ServerPool(self.servers, McpOpener(around), clock or SystemClock(), self.told.append) as pool:
            self.lease = pool.lease(pool.servers)
            yield pool

    async def list(self, pool, limit_s: float = 8.0):
        return await pool.list_tools(pool.servers, limit_s)

    async def call(self, pool, name: str = "mcp__raw__hi", /, **arguments):
        tools = await self.list(pool)
        return await call(tools[name], self.root, **arguments)


TREES = TreeProbe()


async def call(tool, root: Path, **arguments):
    return await tool.call(arguments, ToolContext(root, spill_dir=root))


def text_of(result) -> str:
    return "\n".join(block.text for block in result.content)


async def wait_gone(pid: int, limit_s: float = 20.0) -> bool:
    """Whether a process has ended within the limit."""
    for _ in range(int(limit_s / 0.02)):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        await asyncio.sleep(0.02)
    return False
