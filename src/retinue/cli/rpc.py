"""`retinue --mode rpc`: a program drives the main agent with pi's commands, until it closes standard input.

Signals end it as they end a headless run: SIGINT 130, SIGTERM 143, SIGHUP 129.
"""

from retinue.app import Retinue
from retinue.cli.headless import Headless, run_until_done, show_warning
from retinue.cli.options import Options
from retinue.core.errors import UsageError
from retinue.serve.rpc.lines import Lines
from retinue.serve.rpc.server import RpcServer


def run_rpc(options: Options) -> int:
    """Serve until the caller is done; returns the exit status."""
    if options.prompts or options.files:
        raise UsageError('--mode rpc takes no prompts and no @files: send {"type": "prompt", …} on standard input')
    return run_until_done(_Rpc(options))


class _Rpc(Headless):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lines = Lines(0)

    async def _work(self, crew: Retinue) -> int:
        await RpcServer(crew, self._lines, self._outlet).serve()
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
