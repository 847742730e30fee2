"""`retinue mcp`: serve the delegation tools to an MCP host on standard input and output."""

from dataclasses import replace
from importlib.metadata import version

from retinue.app import Request, Retinue
from retinue.cli.headless import run_until_done
from retinue.cli.input_lines import LineServer
from retinue.cli.options import Options
from retinue.serve.mcp import McpFrontend


def run_mcp(options: Options) -> int:
    """Serve until the host closes standard input; returns the exit status."""
    return run_until_done(_Mcp(options))


class _Mcp(LineServer):
    def _to_request(self) -> Request:
        return replace(super()._to_request(), surfaces=("*",))

    async def _work(self, crew: Retinue) -> int:
        server = McpFrontend(await crew.open_delegation(), self._outlet.write, version("retinue"))
        await server.serve(self._lines)
        await self._drain()
        return 0
