"""The models that a program turns through, where somebody has chosen others than the settings name."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class ModelScope:
    """Of one Retinue, in whatever session it works."""

    names: Sequence[str] | None = None
    """As `enabledModels` names them, none for all; None for what the settings say."""
