"""The built-in model `offline/rules`: search rules, no language model."""

from retinue.models.offline.model import INFO, OfflineModel

__all__ = ["INFO", "OfflineModel"]
