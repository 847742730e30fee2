"""`retinue --mode rpc`: another program controls the main agent with pi's commands until it closes standard input.

Signals end it like a headless run: SIGINT 130, SIGTERM 143, SIGHUP 129.
"""

from retinue.app import Retinue
from retinue.cli.headless import run_until_done
from retinue.cli.input_lines import LineServer
from retinue.cli.options import Options
from retinue.core.errors import UsageError
from retinue.serve.rpc.server import RpcServer


def run_rpc(options: Options) -> int:
    """Serve until the caller closes standard input; returns the exit status."""
    if options.prompts or options.files:
        raise UsageError('--mode rpc takes no prompts and no @files: send {"type": "prompt", …} on standard input')
    return run_until_done(_Rpc(options))


class _Rpc(LineServer):
    async def _work(self, crew: Retinue) -> int:
        await RpcServer(crew, self._lines, self._outlet).serve()
        await self._drain()
        return 0
