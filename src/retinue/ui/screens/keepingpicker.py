"""Lists whose choice can also be kept for other sessions: models, and thinking levels."""

from retinue.ui.bindings import bind
from retinue.ui.screens.picker import Picker


class KeepingPicker(Picker):
    """Gives back what was chosen; `is_kept` says whether for other sessions too."""

    is_kept = False

    def action_keep(self) -> None:
        """Take the lit row, from now on and next time."""
        self.is_kept = True
        self.action_take()


class ModelPicker(KeepingPicker):
    """Of models."""

    BINDINGS = [bind("app.models.save", "keep", is_first=True)]


class ThinkingPicker(KeepingPicker):
    """Of thinking levels."""

    BINDINGS = [bind("app.thinking.save", "keep", is_first=True)]
