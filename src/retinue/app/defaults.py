"""What of a choice of models is kept for other sessions: single keys of the user's settings.json, which is pi's file.

Must not know what is chosen now, nor any face.
"""

from collections.abc import Sequence

from retinue.core.messages import ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.settings.layers import Loaded
from retinue.settings.paths import Paths
from retinue.settings.preferences import write_keys


class Defaults:
    """Of one user. Each method writes at once, returns what else decides about it, and raises ConfigError."""

    def __init__(self, paths: Paths, loaded: Loaded) -> None:
        self._path = paths.agent_dir / "settings.json"
        self._loaded = loaded

    def keep_model(self, info: ModelInfo) -> str:
        """Begin with this model."""
        write_keys(self._path, {"defaultProvider": info.provider, "defaultModel": info.id})
        return self._find_other("defaultModel")

    def keep_thinking(self, level: ThinkingLevel) -> str:
        """Begin with this thinking level."""
        write_keys(self._path, {"defaultThinkingLevel": level})
        return self._find_other("defaultThinkingLevel")

    def keep_scope(self, names: Sequence[str]) -> str:
        """Turn through these models; none for all."""
        if names:
            write_keys(self._path, {"enabledModels": list(names)})
        else:
            write_keys(self._path, {}, ("enabledModels",))
        return self._find_other("enabledModels")

    def _find_other(self, key: str) -> str:
        """Who decides a setting before the user's file does; empty when nobody does."""
        origin = self._loaded.find_origin(key)
        return "" if origin in ("default", "flag", str(self._path)) else origin
