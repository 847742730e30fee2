"""The welcome text of an empty conversation, with a warning if there is one."""

from rich.text import Text
from textual.widgets import Static

from retinue.ui.formats import clean_line

_WORDS = "Say what is to be done. The agent does it, alone or with others that you see here."


class Welcome(Static):
    """Shown until the first message is sent."""

    DEFAULT_CSS = """
    Welcome { height: auto; padding: 0 2 1 2; color: $text-muted; display: none; }
    Welcome.-shown { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._remark = ""

    def show(self, remark: str = "") -> None:
        if remark != self._remark or not self.has_class("-shown"):
            self._remark = remark
            self.redraw()
        self.add_class("-shown")

    def hide(self) -> None:
        self.remove_class("-shown")

    def redraw(self) -> None:
        """Redraw because the theme has changed."""
        colors = self.app.theme_variables
        text = Text()
        text.append("retinue", style=f"bold {colors.get('accent', '')}")
        text.append(f"  {_WORDS}")
        if self._remark:
            text.append(f"\n\n{clean_line(self._remark, 300)}", style=colors.get("text-warning", ""))
        self.update(text)
