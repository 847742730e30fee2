"""Base class for commands that serve another program over lines on standard input."""

from retinue.app import Retinue
from retinue.cli.headless import Headless
from retinue.cli.options import Options
from retinue.serve.rpc.lines import Lines


class LineServer(Headless):
    """Subclasses read requests from `_lines` in `_work`."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lines = Lines(0)

    def _open_face(self, crew: Retinue) -> None:
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
