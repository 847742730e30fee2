"""A program that the conformance suite starts as a client: it signs in with `retinue login`, then calls the tools.

The suite's authorization servers agree at once, so that following the page's redirects is all that a user would do.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from retinue.core.tool import ToolContext
from retinue.engine.clock import SystemClock
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.pool import ServerPool
from retinue.settings.mcp import load_servers
from retinue.settings.paths import find_paths
from retinue.settings.stored_keys import StoredKeys
from retinue.testing.process import _command, _environment, fresh_home
from retinue.tools.process_tree import TreeProbe
from tests.frontends.login_world import browse
from tests.interop.mcp_client import make_arguments

MOST_SIGN_INS = 3


async def sign_in(environment: dict[str, str], cwd: str) -> int:
    argv = [*_command(), "login", "mcp:suite"]
    process = await asyncio.create_subprocess_exec(*argv, cwd=cwd, env=environment, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async for line in process.stderr:
        sys.stderr.buffer.write(line)
        if line.startswith(b"http"):
            await asyncio.to_thread(browse, line.decode().strip())
    return await process.wait()


async def call_tools(environment: dict[str, str], cwd: str) -> list[str]:
    """Call each tool once; returns what went wrong."""
    told: list[str] = []
    paths = find_paths(cwd, environment)
    servers = load_servers(paths, environment, trusted=False).ready
    logins = StoredKeys(paths, environment)
    around = ServerContext(Path(cwd), environment, TreeProbe(), "1", told.append, logins=logins)
    async with ServerPool(servers, McpOpener(around), SystemClock(), told.append) as pool:
        pool.lease(["suite"])
        for tool in (await pool.list_tools(["suite"], 20)).values():
            result = await tool.call(make_arguments(tool.spec.parameters), ToolContext(Path(cwd)))
            if result.is_error:
                told.append(str(result.content))
    return told


async def main(url: str) -> int:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth = {"clientId": given.get("client_id"), "clientSecret": given.get("client_secret")}
    with tempfile.TemporaryDirectory() as folder:
        home = fresh_home(Path(folder))
        environment = _environment(home)
        entry = {"url": url, "timeout": 20, "oauth": oauth}
        Path(environment["PI_CODING_AGENT_DIR"], "mcp.json").write_text(json.dumps({"mcpServers": {"suite": entry}}))
        for _ in range(MOST_SIGN_INS):
            told = await call_tools(environment, folder)
            print(*told, sep="\n", file=sys.stderr)
            if not any("retinue login mcp:suite" in text for text in told):
                return bool(told)
            if await sign_in(environment, folder):
                return 1
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
