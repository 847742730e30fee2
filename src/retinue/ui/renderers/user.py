"""What the user said."""

from rich.text import Text

from retinue.ui.blocks import UserBlock
from retinue.ui.formats import clean, fold_middle, fold_skill
from retinue.ui.renderers.base import BlockView


class UserView(BlockView):
    """The user's words, in a band of their own."""

    DEFAULT_CSS = """
    UserView { background: $boost; border-left: outer $accent; padding: 0 1; }
    """
    block: UserBlock
    can_fold = True

    def draw(self) -> None:
        """Long pastes show their two ends, and skills their name."""
        is_open = self.is_open
        text = clean(self.block.text if is_open else fold_skill(self.block.text))
        shown = text if is_open else fold_middle(text, 12, 4)[0]
        if self.block.images:
            noun = "image" if self.block.images == 1 else "images"
            shown = f"{shown}\n[{self.block.images} {noun}]".lstrip("\n")
        self.update(Text(shown))
