"""The agents above the editor: a tree that moves while somebody works, and is not there when nobody does."""

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from retinue.core.run import Run
from retinue.ui.tree import Outlook, render_tree


class AgentTree(Static):
    """Shows runs; asks for nothing."""

    DEFAULT_CSS = """
    AgentTree {
        height: auto; max-height: 12; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    AgentTree.-some { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._lines: list[Text] = []

    def show(self, runs: Sequence[Run], outlook: Outlook) -> None:
        """Draw the runs as they are now."""
        lines = render_tree(runs, outlook)
        if lines == self._lines:
            return
        is_other_size = len(lines) != len(self._lines)
        self._lines = lines
        self.set_class(bool(lines), "-some")
        self.update(Text("\n").join(lines), layout=is_other_size)
