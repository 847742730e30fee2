"""Which view shows which block: a list by hand."""

from retinue.ui import blocks
from retinue.ui.renderers.base import BlockView
from retinue.ui.renderers.command import CommandView
from retinue.ui.renderers.note import NoteView
from retinue.ui.renderers.reply import ReplyView
from retinue.ui.renderers.report import ReportView
from retinue.ui.renderers.summary import SummaryView
from retinue.ui.renderers.tool import ToolView
from retinue.ui.renderers.user import UserView

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
    """The view of a block."""
    return VIEWS[type(block)](block, is_open=is_open)
