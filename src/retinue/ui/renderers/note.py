"""A remark that nobody said."""

from rich.text import Text

from retinue.ui.blocks import NoteBlock
from retinue.ui.formats import clean
from retinue.ui.renderers.base import BlockView

_SIGNS = {"info": "·", "warning": "⚠", "error": "✗"}


class NoteView(BlockView):
    """One remark, with its weight in its colour."""

    DEFAULT_CSS = """
    NoteView { padding: 0 1; color: $text-muted; }
    NoteView.-warning { color: $text-warning; }
    NoteView.-error { color: $text-error; }
    """
    block: NoteBlock

    def draw(self) -> None:
        """The sign and the words."""
        self.set_class(self.block.tone == "warning", "-warning")
        self.set_class(self.block.tone == "error", "-error")
        self.update(Text(f"{_SIGNS[self.block.tone]} {clean(self.block.text)}"))
