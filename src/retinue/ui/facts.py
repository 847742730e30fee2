"""Where one is, what was used so far and what one could do: what the footer and the welcome show."""

from typing import TYPE_CHECKING

from retinue.ui.formats import find_percent
from retinue.ui.widgets.footer import Facts

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

RULES = "offline/rules"


def find_remark(app: "RetinueApp") -> str:
    """What should be known before one begins; empty when all is as one would think."""
    if app.link.crew.model.ref != RULES:
        return ""
    return f"{RULES} is no language model: it answers by rules. /model chooses another one."


def find_facts(app: "RetinueApp") -> Facts:
    """The facts of this moment."""
    link = app.link
    if not link.is_open:
        return Facts(status="starting")
    usage, model = link.state.usage, link.crew.model
    return Facts(
        folder=app.folder,
        model=model.ref,
        thinking=link.crew.selection.thinking,
        input=usage.input + usage.cache_read + usage.cache_write,
        output=usage.output,
        cost=usage.cost.total,
        percent=find_percent(link.state.context_tokens, model.context_window),
        window=model.context_window,
    )
