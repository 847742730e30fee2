"""Maps each kind of block to its view."""

from retinue.ui import blocks
from retinue.ui.renderers.base import BlockView, CommandView, NoteView, SummaryView, UserView
from retinue.ui.renderers.reply import ReplyView
from retinue.ui.renderers.report import ReportView
from retinue.ui.renderers.tool import ToolView

VIEWS: dict[type[blocks.Block], type[BlockView]] = {
    blocks.UserBlock: UserView,
    blocks.ReplyBlock: ReplyView,
    blocks.ToolBlock: ToolView,
    blocks.NoteBlock: NoteView,
    blocks.ReportBlock: ReportView,
    blocks.CommandBlock: CommandView,
    blocks.SummaryBlock: SummaryView,
}


def open_view(block: blocks.Block, *, is_open: bool = False) -> BlockView:
    return VIEWS[type(block)](block, is_open=is_open)
