"""Which view shows which block: a list by hand."""

from retinue.ui import blocks
from retinue.ui.views.base import BlockView
from retinue.ui.views.command import CommandView
from retinue.ui.views.note import NoteView
from retinue.ui.views.reply import ReplyView
from retinue.ui.views.report import ReportView
from retinue.ui.views.summary import SummaryView
from retinue.ui.views.tool import ToolView
from retinue.ui.views.user import UserView

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
