"""Open models by name: one registry, one connection pool and one rate limiter for all runs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import ModelError, quote
from retinue.core.model import Model, ModelInfo
from retinue.core.redaction import is_secret_name
from retinue.models.auth import Credential
from retinue.models.catalog import Provider
from retinue.models.gate import name_account
from retinue.models.governor import Governor
from retinue.models.registry import ModelReach, ModelRegistry, OutOfReach
from retinue.models.resolve import ModelChoice
from retinue.models.retry import RetryPolicy
from retinue.models.transport import Timing, Transport

if TYPE_CHECKING:
    from retinue.models.bridge import BridgedModel


class PoolConfig(Struct, frozen=True):
    timing: Timing = field(default_factory=Timing)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    thinking_budgets: Mapping[str, int] = field(default_factory=dict)
    blocks_images: bool = False
    """Never send images."""


class ModelPool:
    def __init__(
        self,
        registry: ModelRegistry,
        config: PoolConfig,
        clock: Clock,
        own: Sequence[Model] = (),
        learn: Callable[[str], None] = lambda key: None,
    ) -> None:
        """`own` are ready-made models; see `add_models`.

        `learn` is called with each key that is used, so that it can be redacted.
        """
        self.registry = registry
        self._config = config
        self._transport = Transport()
        self._governor = Governor(clock, config.retry)
        self._opened: dict[str, Model] = {
            model.info.ref: restrict_model(model, blocks_images=config.blocks_images) for model in own
        }
        self._own = frozenset(self._opened)
        self._bridged: list[BridgedModel] = []
        self._learn = learn

    def open(self, info: ModelInfo) -> Model:
        """A model ready for use; the same object for the same model. Raises ModelError or ConfigError."""
        if info.ref not in self._opened:
            self._opened[info.ref] = self._make(info)
        return self._opened[info.ref]

    def renew(self, credentials: Mapping[str, Credential], provider: str) -> None:
        """Use other entries of auth.json from now on; models of this provider are opened again with its new key."""
        self.registry.renew(credentials)
        for ref in [ref for ref, model in self._opened.items() if model.info.provider == provider]:
            if ref not in self._own:
                del self._opened[ref]

    async def close(self) -> None:
        await self._transport.close()
        for model in self._bridged:
            await model.close()

    def _make(self, info: ModelInfo) -> Model:
        budgets, timing = self._config.thinking_budgets, self._config.timing
        info = replace(info, thinking_budgets=budgets) if budgets else info
        if self._config.blocks_images:
            from retinue.models.convert import drop_images

            info = drop_images(info)
        if info.api == "offline":
            from retinue.models.offline import OfflineModel

            return OfflineModel()
        if info.api == "scripted":
            from retinue.models.scripted import ScriptedModel, load_script

            return ScriptedModel(load_script(info.id), info)
        if info.api == "bridge":
            from retinue.models.bridge import build_bridge

            variables = self.registry.export_key(info)
            secrets = tuple(value for name, value in variables.items() if is_secret_name(name))
            bridged = build_bridge(info, governor=self._governor, timing=timing, secrets=secrets)
            self._bridged.append(bridged)
            return bridged
        from retinue.models.adapter import build_model

        unlocked, key = self.registry.unlock(info)
        self._learn(key)
        unlocked = replace(unlocked, account=name_account(key))
        return build_model(unlocked, transport=self._transport, key=key, governor=self._governor, timing=timing)


class ChildModels:
    """The models that the runs of one main agent may use."""

    def __init__(
        self,
        find_models: Callable[[], ModelPool],
        find_home: Callable[[], ModelInfo],
        find_listed: Callable[[], Sequence[str]],
    ) -> None:
        """`find_home` returns the current main model, `find_listed` the setting `enabledModels`."""
        self._find_models = find_models
        self._find_home = find_home
        self._find_listed = find_listed

    @property
    def registry(self) -> ModelRegistry:
        return self._find_models().registry

    def open(self, info: ModelInfo) -> Model:
        """A model ready for use. Raises ModelError or ConfigError."""
        return self._find_models().open(info)

    def resolve(self, query: str, *, is_choice: bool = False) -> ModelChoice:
        """The model for a name; `is_choice`: the user wrote it. Raises OutOfReach or another ModelError."""
        return self._reach.resolve(query, is_choice=is_choice)

    def find_profile(self, name: str) -> ModelChoice | None:
        """The model of a CodingCode profile: `model@API_KEY_ENV`, an id or a name; None if there is none.

        Raises OutOfReach.
        """
        model, _, variable = name.rpartition("@")
        for provider in self.registry.providers.values() if model else ():
            if variable in provider.env or provider.api_key in (f"${variable}", f"${{{variable}}}"):
                for info in provider.models:
                    if model in (info.id, info.name):
                        return ModelChoice(info, is_chosen=True)
        try:
            return self.resolve(name, is_choice=True)
        except OutOfReach:
            raise
        except ModelError:
            # The model may exist and only lack its key; the error comes when it is opened.
            known = (info for provider in self.registry.providers.values() for info in provider.models)
            return next((ModelChoice(info) for info in known if name in (info.ref, info.id, info.name)), None)

    def list(self) -> Sequence[ModelInfo]:
        """The models that a run can request by name."""
        return self._reach.list()

    @property
    def _reach(self) -> ModelReach:
        return self.registry.reach(self._find_home(), self._find_listed())


def restrict_model(model: Model, *, blocks_images: bool) -> Model:
    """Wrap a ready-made model so that it gets no images, if the user blocks them."""
    if not blocks_images:
        return model
    from retinue.models.convert import TextOnlyModel

    return TextOnlyModel(model)


def add_models(registry: ModelRegistry, models: Sequence[Model], providers: Sequence[Provider] = ()) -> list[str]:
    """Add ready-made models to a registry; returns messages about those that are left out."""
    groups: dict[str, list[ModelInfo]] = {}
    for model in models:
        groups.setdefault(model.info.provider, []).append(model.info)
    made = [Provider(id, id, infos[0].api, "", partial(tuple, infos), needs_key=False) for id, infos in groups.items()]
    known = registry.add((*made, *providers))
    return [f"models of {quote(id)} are left out: a provider with this name exists already" for id in known]
