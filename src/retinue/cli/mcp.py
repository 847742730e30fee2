"""`retinue mcp`: serves the delegation tools to an MCP host on standard input and output, until the host is done."""

from dataclasses import replace
from importlib.metadata import version

from retinue.app import Request, Retinue
from retinue.cli.headless import Headless, run_until_done, show_warning
from retinue.cli.options import Options
from retinue.serve.mcp import McpServer
from retinue.serve.rpc.lines import Lines


def run_mcp(options: Options) -> int:
    """Serve until the host closes standard input; returns the exit status."""
    return run_until_done(_Mcp(options))


class _Mcp(Headless):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lines = Lines(0)

    def _to_request(self) -> Request:
        return replace(super()._to_request(), surfaces=("*",))

    async def _work(self, crew: Retinue) -> int:
        server = McpServer(await crew.open_delegation(), self._outlet.write, version("retinue"))
        await server.serve(self._lines)
        await self._drain()
        return 0

    def _open_face(self, crew: Retinue) -> None:
        crew.listen(show_warning, pieces=False)

    def _end(self, status: int) -> None:
        """The first signal ends it as the end of the input does, a second one at once."""
        if self.ended_by:
            self._leave()
        self.ended_by = status
        if self._crew is None and self._task is not None:
            self._task.cancel()
        self._lines.close()

    def _reader_gone(self) -> None:
        self._lines.close()
