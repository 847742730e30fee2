"""The main agent's model and thinking level: current values, choices and changes.

A change is written to the session, as pi does, and applies from the next reply on.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import ModelError
from retinue.core.events import ModelChanged, ThinkingChanged, Warned
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import Model, ModelInfo
from retinue.engine.runner import LiveRun
from retinue.models.registry import ModelRegistry
from retinue.models.resolve import ModelChoice, match_pattern
from retinue.models.thinking_levels import clamp_level, supported_levels
from retinue.settings.schema import Settings


class ModelScope(Struct):
    """The models that model cycling is limited to; survives a change of session."""

    names: Sequence[str] | None = None
    """Patterns as in `enabledModels`; empty means all models, None means use the settings."""


class CycledModel(NamedTuple):
    """Result of `cycle`."""

    model: ModelInfo
    thinking: ThinkingLevel
    is_scoped: bool
    """True if only models in `enabledModels` were considered."""


class Selection:
    """Reads and changes the model and thinking level of one main agent."""

    def __init__(
        self,
        main: LiveRun,
        registry: ModelRegistry,
        settings: Settings,
        open_model: Callable[[ModelInfo], Model],
        scope: ModelScope,
    ) -> None:
        self._main = main
        self._scope = scope
        self._registry = registry
        self._settings = settings
        self._open_model = open_model

    @property
    def model(self) -> ModelInfo:
        """The model for the next request."""
        return self._main.setup.model.info

    @property
    def thinking(self) -> ThinkingLevel:
        return self._main.setup.thinking

    @property
    def levels(self) -> list[ThinkingLevel]:
        """The levels that the current model supports, weakest first."""
        return supported_levels(self.model)

    def list_models(self) -> list[ModelInfo]:
        return list(self._registry.candidates)

    def list_locked(self) -> list[ModelInfo]:
        """The models of providers that have no key."""
        keys = self._registry.keys
        locked = [each for each in self._registry.providers.values() if not (each.trouble or keys.has_key(each))]
        return [info for provider in locked for info in provider.models]

    def find_default(self, provider: str) -> ModelInfo | None:
        """The default model of a provider."""
        return self._registry.providers[provider].default_model

    @property
    def is_unset(self) -> bool:
        """Whether there is no key and no default model, so that the user has yet to choose how to work."""
        wishes = self._settings.default_model or self._settings.default_provider or self._patterns
        return not wishes and all(info.api == "offline" for info in self._registry.candidates)

    def find_local(self) -> ModelInfo | None:
        """The first model of a server on this machine; blocks for a moment if they have not been asked yet."""
        return next(iter(self._registry.find_local()), None)

    def select(self, provider: str, model_id: str) -> ModelInfo:
        """Use this model from now on. Raises ModelError if it does not exist or cannot be reached."""
        try:
            choice = self._registry.find(provider, model_id)
        except ModelError as error:
            raise ModelError(f"Model not found: {provider}/{model_id} ({error})") from error
        self._take(choice.info)
        if choice.reason:
            self._main.bus.publish(Warned(run_id=self._main.setup.run_id, text=choice.reason))
        return choice.info

    def cycle(self, step: int = 1) -> CycledModel | None:
        """Switch to the next model (-1: the previous one) of `enabledModels`, or of all models if that is empty.

        Returns None if there is only one.
        """
        scoped = self._list_scoped()
        # Cycling must not select the offline model, which gives no real answers.
        choices = scoped or [ModelChoice(info) for info in self.list_models() if info.api != "offline"]
        if len(choices) < 2:
            return None
        refs = [choice.info.ref for choice in choices]
        place = refs.index(self.model.ref) if self.model.ref in refs else 0
        following = choices[(place + step) % len(choices)]
        self._take(following.info, following.thinking)
        return CycledModel(self.model, self.thinking, bool(scoped))

    def think(self, level: ThinkingLevel) -> ThinkingLevel:
        """Set the thinking level, or the nearest one that the model supports; returns the level that was set."""
        main, effective = self._main, clamp_level(self.model, level)
        if effective != self.thinking:
            main.change(thinking=effective)
            main.journal.write(lambda: main.session.append_thinking_level(effective))
            main.bus.publish(ThinkingChanged(run_id=main.setup.run_id, level=effective))
        return effective

    def cycle_thinking(self) -> ThinkingLevel | None:
        """Switch to the next thinking level; None if the model cannot think."""
        levels = self.levels
        if not self.model.reasoning:
            return None
        place = levels.index(self.thinking) if self.thinking in levels else -1
        return self.think(levels[(place + 1) % len(levels)])

    def restore(self) -> None:
        """Apply the model and thinking level stored in the session, where still possible; writes nothing."""
        context = self._main.session.context()
        if context.model is not None and "/".join(context.model) != self.model.ref:
            with suppress(ModelError):
                self._use(self._registry.find(*context.model).info)
        level = next((level for level in THINKING_LEVELS if level == context.thinking), self.thinking)
        self._main.change(thinking=clamp_level(self.model, level))

    def _take(self, info: ModelInfo, thinking: ThinkingLevel | None = None) -> None:
        main = self._main
        could_think = self.model.reasoning
        self._use(info)
        main.journal.write(lambda: main.session.append_model_change(info.provider, info.id))
        main.bus.publish(ModelChanged(run_id=main.setup.run_id, provider=info.provider, model_id=info.id))
        self.think(thinking or (self.thinking if could_think else self._settings.default_thinking_level))

    def _use(self, info: ModelInfo) -> None:
        compaction = self._settings.compaction.for_model(info.ref)
        compaction = replace(compaction, enabled=self._main.setup.compaction.enabled)
        self._main.change(model=self._open_model(info), compaction=compaction)

    @property
    def scope(self) -> list[str]:
        """The models that cycling is limited to, in `enabledModels` notation; empty means all.

        Patterns that match no available model are kept unchanged.
        """
        found: dict[str, str] = {}
        for pattern in self._patterns:
            matching = match_pattern(pattern, self._registry.names)
            for ref, thinking in ((choice.info.ref, choice.thinking) for choice in matching):
                found.setdefault(ref, f"{ref}:{thinking}" if thinking else ref)
            if not matching:
                found.setdefault(pattern, pattern)
        return list(found.values())

    def limit(self, names: Sequence[str]) -> None:
        """Limit cycling to these models, in this order; empty means all. Applies until the program ends."""
        self._scope.names = tuple(names)

    @property
    def _patterns(self) -> Sequence[str]:
        return self._settings.enabled_models if self._scope.names is None else self._scope.names

    def _list_scoped(self) -> list[ModelChoice]:
        names = self._registry.names
        found = [choice for pattern in self._patterns for choice in match_pattern(pattern, names)]
        return list({choice.info.ref: choice for choice in found}.values())
