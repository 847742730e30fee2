"""What of a choice of models is kept for other sessions: single keys of the user's settings.json, which is pi's file.

Must not know what is chosen now, nor any face.
"""

from collections.abc import Sequence

from retinue.core.messages import ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.models.resolve import Names, match_pattern
from retinue.settings.layers import Loaded
from retinue.settings.paths import Paths
from retinue.settings.preferences import write_keys


class Defaults:
    """Of one user. Each method writes at once, returns what else decides about it, and raises ConfigError."""

    def __init__(self, paths: Paths, loaded: Loaded) -> None:
        self._path = paths.agent_dir / "settings.json"
        self._loaded = loaded
        is_file = loaded.find_origin("enabledModels") != "flag"
        self._scope = loaded.settings.enabled_models if is_file else ()

    def keep_model(self, info: ModelInfo) -> str:
        """Begin with this model."""
        write_keys(self._path, {"defaultProvider": info.provider, "defaultModel": info.id})
        return self._find_other("defaultModel") or self._find_scope(info)

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
        self._scope = tuple(names)
        return self._find_other("enabledModels")

    def _find_scope(self, info: ModelInfo) -> str:
        """That sessions begin with a model of a list that this one is not on; else empty."""
        names = Names([info], {})
        is_in = not self._scope or any(match_pattern(pattern, names) for pattern in self._scope)
        return "" if is_in else "enabledModels, where it is not named,"

    def _find_other(self, key: str) -> str:
        """Who decides a setting before the user's file does; empty when nobody does."""
        origin = self._loaded.find_origin(key)
        return "" if origin in ("default", "flag", str(self._path)) else origin
