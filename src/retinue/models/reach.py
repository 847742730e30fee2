"""Which models the runs of one main agent may be given: no provider hears anything that the user did not choose.

A name stays within the provider of the main model and the models of `enabledModels`. Only a person who writes
`provider/id` chooses another provider. Pure.
"""

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct, structs

from retinue.core.errors import ModelError
from retinue.core.model import ModelInfo
from retinue.models.resolve import Choice, Names, match_pattern, resolve_model, split_provider, split_thinking


class OutOfReach(ModelError):
    """Raised when a name means a model of a provider that the user did not choose."""

    def __init__(self, name: str, info: ModelInfo) -> None:
        super().__init__(
            f'model "{name}" is of provider {info.provider}, which is not that of the main model, '
            "and enabledModels does not list it"
        )
        self.info = info

    def explain(self, used: ModelInfo) -> str:
        """What is asked instead, and how to choose it, for whoever wrote the name."""
        return f"{self}: {used.ref} is used (write {self.info.ref} to choose it)"


class Reach(Struct, frozen=True, dict=True):
    """What names mean below one main agent."""

    names: Names
    home: ModelInfo
    """The main model."""
    listed: Sequence[str] = ()
    """As in `enabledModels`."""
    others: Sequence[ModelInfo] = ()
    """Models that are on no list, such as those of servers on this machine."""

    @cached_property
    def near(self) -> list[ModelInfo]:
        """The models of the main model's provider."""
        found = [info for info in (*self.names.candidates, *self.others) if info.provider == self.home.provider]
        return found if any(info.ref == self.home.ref for info in found) else [self.home, *found]

    @cached_property
    def enabled(self) -> list[ModelInfo]:
        """The models that the user lists."""
        return [choice.info for pattern in self.listed for choice in match_pattern(pattern, self.names)]

    def list(self) -> "list[ModelInfo]":
        """All that may be named without choosing a provider."""
        return list({info.ref: info for info in (*self.near, *self.enabled)}.values())

    def resolve(self, query: str, *, is_choice: bool = False) -> Choice:
        """The model a name means; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
        if is_choice and (choice := follow_choice(query, self.names)) is not None:
            return choice
        if (choice := self._find_exact(query)) is not None:
            return choice
        for pool in (self.near, self.enabled):
            try:
                choice = resolve_model(query, Names(pool, self.names.known, self.names.explain), anywhere=True)
            except ModelError:
                continue
            # Scripts and bridges are in no pool.
            if any(info.ref == choice.info.ref for info in pool) or self._is_like_home(choice.info):
                return choice
        choice = resolve_model(query, self.names, anywhere=True)
        if any(info.ref == choice.info.ref for info in self.names.candidates):
            raise OutOfReach(query.strip(), choice.info)
        raise ModelError(f"unknown model {query!r}")

    def _find_exact(self, query: str) -> Choice | None:
        texts = ((query.strip(), None), split_thinking(query))
        for text, level in (each for each in texts if each is not None):
            for info in self.list():
                if info.ref.lower() == text.lower():
                    return Choice(info, level)
        return None

    def _is_like_home(self, info: ModelInfo) -> bool:
        return info.provider == self.home.provider and info.api == self.home.api


def follow_choice(query: str, names: Names) -> Choice | None:
    """What a person chose by naming its provider; None when no provider is named, or it has no such model."""
    named = split_provider(query.strip(), names)
    if named is None and not query.strip().lower().startswith(("scripted/", "bridge/")):
        return None
    try:
        choice = resolve_model(query, names, accept=True)
    except ModelError:
        return None  # another provider may serve it, if it is one that may be asked
    if named is not None and choice.info.provider != named[0]:
        return None
    return structs.replace(choice, is_chosen=True)
