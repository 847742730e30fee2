"""What all views of blocks have in common: they know their block, redraw when it has changed, and may be folded."""

from typing import TYPE_CHECKING

from textual.widgets import Static

from retinue.ui.blocks import Block

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


class BlockView(Static):
    """Shows one block. Subclasses say how in `draw`."""

    DEFAULT_CSS = """
    BlockView { height: auto; width: 1fr; margin: 0 0 1 0; }
    BlockView.-found { background: $accent 15%; }
    """
    app: "RetinueApp"
    can_fold = False
    """Whether there is more to see than is shown at first."""

    def __init__(self, block: Block, *, is_open: bool = False) -> None:
        super().__init__(markup=False)
        self.block = block
        self.is_open = is_open
        self._drawn: tuple[int, bool] | None = None

    def on_mount(self) -> None:
        """Show it for the first time."""
        self.sync()

    def sync(self) -> bool:
        """Redraw if the block has changed; whether it had."""
        state = (self.block.version, self.is_open)
        if state == self._drawn:
            return False
        self._drawn = state
        self.draw()
        return True

    def redraw(self) -> None:
        """Draw it again although it has not changed: the colours have."""
        self._drawn = None
        self.sync()

    def draw(self) -> None:
        """Show the block as it is now."""
        raise NotImplementedError

    def fold(self, *, is_open: bool) -> None:
        """Show all of it, or only the beginning."""
        if self.can_fold and is_open != self.is_open:
            self.is_open = is_open
            self.sync()

    def on_click(self) -> None:
        """A click opens and closes it."""
        self.fold(is_open=not self.is_open)
