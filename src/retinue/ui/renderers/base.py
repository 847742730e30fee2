"""Base class of block views, the views of prompts, notes, summaries and shell commands, and Markdown."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text
from textual.widgets import Static

from retinue.core.figures import format_tokens
from retinue.ui.blocks import Block, CommandBlock, NoteBlock, SummaryBlock, UserBlock
from retinue.ui.formats import clean, fold_middle, fold_skill, format_seconds

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_MOST_CHARS = 200_000
"""Longer texts are shown as plain text."""


def render_markdown(text: str, app: "RetinueApp") -> RenderableType:
    """Render Markdown of a model: escaped, in the colours of the theme, with visible link targets."""
    safe = clean(text)
    if len(safe) > _MOST_CHARS:
        return Text(safe)
    from retinue.ui.renderers.page import MarkdownPage

    code_theme = "ansi_dark" if app.current_theme.dark else "ansi_light"
    return MarkdownPage(safe, code_theme=code_theme, colors=app.theme_variables)


def stack(*parts: RenderableType | None) -> RenderableType:
    """Put several renderables below each other."""
    return Group(*(part for part in parts if part is not None))


class BlockView(Static):
    """Shows one block. Subclasses implement `draw`."""

    DEFAULT_CSS = """
    BlockView { height: auto; width: 1fr; margin: 0 0 1 0; }
    BlockView.-found { background: $accent 15%; }
    """
    app: "RetinueApp"
    can_fold = False
    """Whether the view can be expanded."""

    def __init__(self, block: Block, *, is_open: bool = False) -> None:
        super().__init__(markup=False)
        self.block = block
        self.is_open = is_open
        self._drawn: tuple[int, bool] | None = None

    def on_mount(self) -> None:
        self.sync()

    def sync(self) -> None:
        """Redraw if the block has changed."""
        state = (self.block.version, self.is_open)
        if state != self._drawn:
            self._drawn = state
            self.display = not self.block.is_hidden
            self.draw()

    def redraw(self) -> None:
        """Redraw although the block has not changed, because the theme has."""
        self._drawn = None
        self.sync()

    def draw(self) -> None:
        raise NotImplementedError

    def fold(self, *, is_open: bool) -> None:
        """Expand or collapse the view."""
        if self.can_fold and is_open != self.is_open:
            self.is_open = is_open
            self.sync()

    def on_click(self) -> None:
        """Expand or collapse on click."""
        self.fold(is_open=not self.is_open)


class CommandView(BlockView):
    """A shell command, its output and exit status."""

    DEFAULT_CSS = """
    CommandView { padding: 0 1; border-left: outer $warning; }
    """
    block: CommandBlock
    can_fold = True

    def draw(self) -> None:
        """Long output shows only its end."""
        block = self.block
        output = clean(block.output).rstrip("\n")
        shown = Text(f"{'!!' if block.is_private else '!'} {clean(block.command)}", style="bold")
        if output:
            shown.append(f"\n{output if self.is_open else fold_middle(output, 0, 10)[0]}", style="not bold")
        if not block.is_live or block.duration_ms is not None:
            time = "" if block.duration_ms is None else format_seconds(block.duration_ms)
            if block.exit_code is None:
                end = f"interrupted{f' after {time}' if time else ''}"
            else:
                end = " · ".join(filter(None, (f"exit {block.exit_code}", time)))
            shown.append(f"\n{end}", style="not bold dim" if block.exit_code == 0 else "not bold red")
        self.update(shown)


_SIGNS = {"info": "·", "warning": "⚠", "error": "✗"}


class NoteView(BlockView):
    """A note with a sign and a colour for its severity."""

    DEFAULT_CSS = """
    NoteView { padding: 0 1; color: $text-muted; }
    NoteView.-warning { color: $text-warning; }
    NoteView.-error { color: $text-error; }
    """
    block: NoteBlock

    def draw(self) -> None:
        self.set_class(self.block.tone == "warning", "-warning")
        self.set_class(self.block.tone == "error", "-error")
        self.update(Text(f"{_SIGNS[self.block.tone]} {clean(self.block.text)}"))


class SummaryView(BlockView):
    """A compaction or a branch that was left: one line, with the summary when expanded."""

    DEFAULT_CSS = """
    SummaryView { padding: 0 1; color: $text-muted; border-top: dashed $foreground 30%; }
    """
    block: SummaryBlock
    can_fold = True

    def draw(self) -> None:
        """Collapsed at first, because the summary is for the model."""
        block = self.block
        if block.kind == "branch":
            head = "⑂ summary of the branch you left"
        else:
            tokens = f" ({format_tokens(block.tokens_before)} tokens)" if block.tokens_before else ""
            head = f"⇊ earlier conversation summarised{tokens}"
        words = render_markdown(block.summary, self.app) if self.is_open else None
        self.update(stack(Text(head), words))


class UserView(BlockView):
    """A user message."""

    DEFAULT_CSS = """
    UserView { background: $boost; border-left: outer $accent; padding: 0 1; }
    """
    block: UserBlock
    can_fold = True

    def draw(self) -> None:
        """Long messages show only their start and end; skills show only their name."""
        is_open = self.is_open
        text = clean(self.block.text if is_open else fold_skill(self.block.text))
        shown = text if is_open else fold_middle(text, 12, 4)[0]
        if self.block.images:
            noun = "image" if self.block.images == 1 else "images"
            shown = f"{shown}\n[{self.block.images} {noun}]".lstrip("\n")
        self.update(Text(shown))
