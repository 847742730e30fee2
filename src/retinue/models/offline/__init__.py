"""The built-in model `offline/rules`."""

from retinue.models.offline.model import INFO, OfflineModel

__all__ = ["INFO", "OfflineModel"]
