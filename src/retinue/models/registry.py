"""The registry of providers and keys of one process: which models are usable, and which a run may use.

This file must not read files; its builder does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, structs

from retinue.core.errors import ModelError
from retinue.core.model import ModelInfo
from retinue.models.auth import Credential, Keys
from retinue.models.catalog import OFFLINE_MODEL, SERVERS, Provider, hide_login
from retinue.models.resolve import (
    ModelChoice,
    Names,
    RequestedModel,
    choose_model,
    match_pattern,
    resolve_model,
    split_provider,
    split_thinking,
)


class OutOfReach(ModelError):
    """A name means a model of a provider that the user did not choose."""

    def __init__(self, name: str, info: ModelInfo) -> None:
        super().__init__(
            f'model "{name}" belongs to provider {info.provider}, which is not the provider of the main model, '
            "and enabledModels does not list it"
        )
        self.info = info

    def explain(self, used: ModelInfo) -> str:
        """A message for the author of the name: which model is used instead, and how to choose this one."""
        return f"{self}: {used.ref} is used (write {self.info.ref} to choose it)"


class ModelReach(Struct, frozen=True, dict=True):
    """Resolves model names for the runs of one main agent."""

    names: Names
    home: ModelInfo
    listed: Sequence[str] = ()
    """The setting `enabledModels`."""
    others: Sequence[ModelInfo] = ()
    """Unlisted models, such as those of servers on this machine."""

    @cached_property
    def near(self) -> list[ModelInfo]:
        """The models of the main model's provider."""
        found = [info for info in (*self.names.candidates, *self.others) if info.provider == self.home.provider]
        return found if any(info.ref == self.home.ref for info in found) else [self.home, *found]

    @cached_property
    def enabled(self) -> list[ModelInfo]:
        return [choice.info for pattern in self.listed for choice in match_pattern(pattern, self.names)]

    def list(self) -> "list[ModelInfo]":
        """All models that can be named without choosing a provider."""
        return list({info.ref: info for info in (*self.near, *self.enabled)}.values())

    def resolve(self, query: str, *, is_choice: bool = False) -> ModelChoice:
        """The model for a name; `is_choice`: the user wrote it. Raises OutOfReach or another ModelError."""
        if is_choice and (choice := follow_choice(query, self.names)) is not None:
            return choice
        if (choice := self._find_exact(query)) is not None:
            return choice
        home = (self.home.provider, self.home.api)
        for pool in (self.near, self.enabled):
            try:
                choice = resolve_model(query, Names(pool, self.names.known, self.names.explain), anywhere=True)
            except ModelError:
                continue
            # Scripted and bridged models are in no pool.
            if any(info.ref == choice.info.ref for info in pool) or (choice.info.provider, choice.info.api) == home:
                return choice
        choice = resolve_model(query, self.names, anywhere=True)
        if any(info.ref == choice.info.ref for info in self.names.candidates):
            raise OutOfReach(query.strip(), choice.info)
        raise ModelError(f"unknown model {query!r}")

    def _find_exact(self, query: str) -> ModelChoice | None:
        texts = ((query.strip(), None), split_thinking(query))
        for text, level in (each for each in texts if each is not None):
            for info in self.list():
                if info.ref.lower() == text.lower():
                    return ModelChoice(info, level)
        return None


def follow_choice(query: str, names: Names) -> ModelChoice | None:
    """The model the user chose by naming its provider; None if no provider is named or it has no such model."""
    named = split_provider(query.strip(), names)
    if named is None and not query.strip().lower().startswith(("scripted/", "bridge/")):
        return None
    try:
        choice = resolve_model(query, names, accept=True)
    except ModelError:
        return None  # another allowed provider may have it
    if named is not None and choice.info.provider != named[0]:
        return None
    return structs.replace(choice, is_chosen=True)


# pydantic-ai finds the key of a bridged model itself.
_KEYLESS_APIS = ("offline", "scripted", "bridge")
_LOCAL = frozenset(server.provider for server in SERVERS)


class ModelRegistry:
    def __init__(
        self,
        providers: Mapping[str, Provider],
        keys: Keys,
        *,
        find_local: Callable[[], Sequence[ModelInfo]] = tuple,
    ) -> None:
        self.providers = providers
        self.keys = keys
        self._find_local = find_local
        self._local: tuple[ModelInfo, ...] | None = None

    @cached_property
    def candidates(self) -> tuple[ModelInfo, ...]:
        """The usable models; `offline/rules` is last."""
        usable = [provider for provider in self.providers.values() if self.keys.has_key(provider)]
        usable.sort(key=lambda provider: provider.id == OFFLINE_MODEL.provider)
        return tuple(model for provider in usable for model in provider.models)

    @cached_property
    def names(self) -> Names:
        return Names(self.candidates, self.providers, self.keys.explain_missing)

    def add(self, providers: Iterable[Provider]) -> list[str]:
        """Add providers; returns the ids of those left out because the id is taken."""
        given = {provider.id: provider for provider in providers}
        self.providers = {**self.providers, **{id: each for id, each in given.items() if id not in self.providers}}
        self._forget()
        return [id for id, provider in given.items() if self.providers[id] is not provider]

    def find_local(self) -> tuple[ModelInfo, ...]:
        """The models of servers on this machine; they are asked once."""
        if self._local is None:
            self._local = tuple(self._find_local())
        return self._local

    def resolve(self, query: str, *, provider: str | None = None) -> ModelChoice:
        """The model the user means. Raises ModelError."""
        return resolve_model(query, self.names, provider=provider, accept=True)

    def find(self, provider: str, id: str) -> ModelChoice:
        """The model with exactly this name, even if it is unlisted. Raises ModelError."""
        ref = f"{provider}/{id}"
        local = self.find_local() if provider in _LOCAL else ()
        for info in (*self.candidates, *local):
            if info.ref == ref:
                return ModelChoice(info)
        choice = self.resolve(ref)
        if choice.info.ref != ref:
            raise ModelError(f"there is no model with this name; the closest is {choice.info.ref}")
        return choice

    def reach(self, home: ModelInfo, listed: Sequence[str] = ()) -> ModelReach:
        """Name resolution for runs below a main model; `listed` is the setting `enabledModels`."""
        return ModelReach(self.names, home, listed, self._local or ())

    def choose(self, wishes: RequestedModel) -> ModelChoice:
        """The model to start with; `reason` is set if the user did not name it. Raises ModelError."""
        in_environment = [id for id, provider in self.providers.items() if self.keys.is_in_environment(provider)]
        if self.keys.has_flag and wishes.model is None and wishes.provider is None:
            raise ModelError("--api-key needs --model or --provider: a key is only sent to a provider that you name")
        choice = choose_model(wishes, self.names, in_environment=in_environment, find_local=self.find_local)
        if self.keys.has_flag:
            self.keys.bind_flag(choice.info.provider)
            self._forget()
        return choice

    def renew(self, credentials: Mapping[str, Credential]) -> None:
        """Use other entries of auth.json from now on."""
        self.keys.renew(credentials)
        self._forget()

    def _forget(self) -> None:
        """Find the usable models again when they are next needed."""
        for name in ("candidates", "names"):
            self.__dict__.pop(name, None)

    def unlock(self, info: ModelInfo) -> tuple[ModelInfo, str]:
        """The model with its request headers, and its key. May block on a command; raises ConfigError or ModelError."""
        if info.api in _KEYLESS_APIS or (self._local and info in self._local):
            return info, ""
        provider = self.providers.get(info.provider)
        if provider is None:
            raise ModelError(f"unknown provider {info.provider!r} of model {info.ref!r}")
        return self.keys.unlock(provider, info)

    def export_key(self, info: ModelInfo) -> dict[str, str]:
        """The variables another process needs to call this model, without the key of any other provider."""
        if info.api == "bridge":
            return self.keys.export_named(info.provider)
        provider = self.providers.get(info.provider)
        return {} if provider is None or info.api in _KEYLESS_APIS else self.keys.export(provider, info)

    def list_moves(self) -> list[str]:
        """Messages about usable providers whose base URL comes from the environment."""
        moved = [each for each in self.providers.values() if each.base_url_from and self.keys.has_key(each)]
        return [f"{each.id} requests go to {hide_login(each.base_url)} ({each.base_url_from})" for each in moved]

    def list_models(self, default: str) -> dict[str, Any]:
        """The output of `retinue models --json`: usable models first."""
        usable = [*self.candidates, *self.find_local()]
        named = {model.ref for model in usable}
        others = [model for provider in self.providers.values() for model in provider.models if model.ref not in named]
        rows = [
            {
                "provider": model.provider,
                "id": model.id,
                "name": model.name,
                "api": model.api,
                "contextWindow": model.context_window,
                "available": model.ref in named,
            }
            for model in (*usable, *others)
        ]
        return {"models": rows, "default": default}
