"""A command that the user ran beside the conversation."""

from rich.text import Text

from retinue.ui.blocks import CommandBlock
from retinue.ui.formats import clean, fold_middle
from retinue.ui.renderers.base import BlockView


class CommandView(BlockView):
    """The command, its output and how it ended."""

    DEFAULT_CSS = """
    CommandView { padding: 0 1; border-left: outer $warning; }
    """
    block: CommandBlock
    can_fold = True

    def draw(self) -> None:
        """Long output shows its two ends."""
        block = self.block
        output = clean(block.output).rstrip("\n")
        shown = Text(f"{'!!' if block.is_private else '!'} {clean(block.command)}\n", style="bold")
        shown.append(output if self.is_open else fold_middle(output, 10, 10)[0], style="not bold")
        if block.exit_code:
            shown.append(f"\nexit status {block.exit_code}", style="not bold red")
        self.update(shown)
