"""`retinue --mode rpc`, `retinue mcp` and `retinue acp`: serve another program over lines on standard input and output.

They serve until the caller closes standard input. Signals end them like a headless run: SIGINT 130, SIGTERM 143,
SIGHUP 129.
"""

import asyncio

from msgspec.structs import replace

from retinue.app import Request, Retinue
from retinue.cli.headless import Headless, run_until_done
from retinue.cli.options import Options
from retinue.core.errors import UsageError
from retinue.serve.rpc.lines import Lines


def run_rpc(options: Options) -> int:
    """Let another program control the main agent with pi's commands."""
    if options.prompts or options.files:
        raise UsageError('--mode rpc takes no prompts and no @files: send {"type": "prompt", …} on standard input')
    return run_until_done(_Rpc(options))


def run_acp(options: Options) -> int:
    """Be the agent of an editor that speaks the Agent Client Protocol."""
    try:
        import acp  # noqa: F401 - the extra may be missing
    except ImportError as error:
        raise UsageError("retinue acp needs an optional package: pip install 'retinue[acp]'") from error
    quiet_libraries()
    return run_until_done(_Acp(options))


def run_mcp(options: Options) -> int:
    """Serve the delegation tools to an MCP host, or over HTTP to several."""
    if options.http:
        from retinue.cli.mcp_http import run_http

        return run_http(options)
    if given := "--port" if options.port else "--host" if options.host else "":
        raise UsageError(f"{given} needs --http: retinue mcp --http {given} …")
    return run_until_done(_Mcp(options))


def quiet_libraries() -> None:
    """Keep logs of libraries off standard error: they show tracebacks of bad messages, which the client hears of."""
    import logging

    logging.getLogger().addHandler(logging.NullHandler())


class _LineServer(Headless):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lines = Lines(0)

    def _open_frontend(self, crew: Retinue) -> None:
        crew.listen(self._show_warning, pieces=False)

    def _end(self, status: int) -> None:
        """The first signal has the same effect as the end of the input; a second one ends at once."""
        if self.ended_by:
            self._leave()
        self.ended_by = status
        if self._crew is None and self._task is not None:
            self._task.cancel()
        self._lines.close()

    def _reader_gone(self) -> None:
        self._lines.close()


class _Rpc(_LineServer):
    async def _work(self, crew: Retinue) -> int:
        from retinue.serve.rpc.server import RpcServer

        await RpcServer(crew, self._lines, self._outlet).serve()
        await self._drain()
        return 0


class _Mcp(_LineServer):
    def _to_request(self) -> Request:
        return replace(super()._to_request(), surfaces=("*",))

    async def _work(self, crew: Retinue) -> int:
        from importlib.metadata import version

        from retinue.serve.mcp.calls import HostCalls
        from retinue.serve.mcp.lines import McpFrontend

        quiet_libraries()
        async with asyncio.TaskGroup() as group:
            calls = HostCalls(crew, await crew.open_delegation(), group)
            await McpFrontend(calls, self._outlet.write, version("retinue")).serve(self._lines)
            calls.close()
        await self._drain()
        return 0


class _Acp(_LineServer):
    async def run(self) -> int:
        """Serve an editor: it opens the sessions, each in a folder of its own."""
        from importlib.metadata import version

        from retinue.serve.acp.agent import AcpAgent

        self._catch_signals()
        await AcpAgent(self._to_request(), self._lines, self._outlet, self._say, version("retinue")).serve()
        await self._drain()
        return self.ended_by

    def _end(self, status: int) -> None:
        if self.ended_by:
            self._leave()
        self.ended_by = status
        self._lines.close()
