"""Lists whose choice can also be kept for other sessions: models, and thinking levels."""

from collections.abc import Collection, Sequence

from textual.widgets import Static

from retinue.ui.bindings import bind
from retinue.ui.screens.picker import Choice, Picker


class KeepingPicker(Picker):
    """Gives back what was chosen; `is_kept` says whether for other sessions too."""

    is_kept = False

    def action_keep(self) -> None:
        """Take the lit row, from now on and next time."""
        self.is_kept = True
        self.action_take()


class ModelPicker(KeepingPicker):
    """Of models: first those that keys turn through, where not all are, and with a key all."""

    BINDINGS = [
        bind("app.models.save", "keep", is_first=True),
        bind("tui.input.tab", "widen", is_first=True),
    ]

    def __init__(self, models: Sequence[Choice], scope: Collection[str], *, chosen: str, save: str, tab: str) -> None:
        """`scope` are those that are turned through, none for all; `save` and `tab` are keys as they are shown."""
        self._models = models
        self._scoped = [choice for choice in models if choice.key in scope]
        self._now = chosen
        self._is_wide = not self._scoped
        self._save, self._tab = save, tab
        super().__init__(self._render_title(), self._list_rows(), chosen=chosen, hint=self._describe())

    def action_widen(self) -> None:
        """Show all, or those that are turned through only."""
        if not self._scoped or not self._is_ready:
            return
        self._is_wide = not self._is_wide
        self._title = self._render_title()
        self.query_one("#title", Static).update(self._title)
        self.put(self._list_rows(), chosen=self._now, hint=self._describe())

    def _render_title(self) -> str:
        return "Model" if not self._scoped else f"Model: {'all' if self._is_wide else 'scoped'}"

    def _list_rows(self) -> Sequence[Choice]:
        return self._models if self._is_wide else self._scoped

    def _describe(self) -> str:
        others = "scoped ones" if self._is_wide else "all"
        parts = [
            "enter takes",
            f"{self._save} takes it for all sessions" if self._save else "",
            f"{self._tab} shows {others}" if self._scoped and self._tab else "",
            "esc leaves",
        ]
        return " · ".join(filter(None, parts))


class ThinkingPicker(KeepingPicker):
    """Of thinking levels."""

    BINDINGS = [bind("app.thinking.save", "keep", is_first=True)]
