"""Chooses the model and thinking level of a run. A model name is resolved once per run.

A model that the user chooses while the run works is used from the next reply on.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.errors import ModelError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.engine.request import RunRequest
from retinue.models.registry import ModelRegistry, OutOfReach, follow_choice
from retinue.models.resolve import ModelChoice


class ModelSource(Protocol):
    def resolve(self, query: str, *, is_choice: bool = False) -> ModelChoice:
        """Return the model for a name; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
        ...

    def open(self, info: ModelInfo) -> Model:
        """Return a model that can be asked. Raises ModelError or ConfigError."""
        ...


class WrappedModel:
    """A base class and no protocol: every run looks for wrappers, and a protocol is slow to look for."""

    inner_model: Model


class LastingWrapper(WrappedModel):
    """A wrapper that stays when the user chooses another model."""

    def rewrap(self, model: Model) -> Model:
        """Return the same wrapper around another model."""
        raise NotImplementedError


def replace_model(around: Model, model: Model) -> Model:
    """Return a model in all lasting wrappers of another one."""
    return around.rewrap(replace_model(around.inner_model, model)) if isinstance(around, LastingWrapper) else model


class NamedModel(Struct, frozen=True):
    """The model that a request or agent file names, resolved."""

    name: str = ""
    """Empty means the parent's model."""
    is_choice: bool = False
    """Whether a person wrote the name."""
    found: ModelChoice | None = None
    failure: ModelError | None = None
    """Why it was not found."""

    @property
    def thinking(self) -> ThinkingLevel | None:
        """The thinking level in the name, such as `model:high`."""
        return None if self.found is None else self.found.thinking


def find_model(definition: Definition, request: RunRequest, models: ModelSource) -> NamedModel:
    """Resolve the model of the request, else of the definition."""
    name, is_choice = request.model or "", request.is_model_chosen
    if not name:
        name, is_choice = definition.model or "", definition.source != "builtin"
    if name in ("", "inherit") and not request.model:
        return NamedModel()
    try:
        return NamedModel(name, is_choice, models.resolve(name, is_choice=is_choice))
    except ModelError as error:
        return NamedModel(name, is_choice, failure=error)


def choose_model(
    named: NamedModel,
    definition: Definition,
    request: RunRequest,
    inherited: Model,
    models: ModelSource,
    *,
    accepts_unknown: bool = False,
    is_lenient: bool = False,
) -> tuple[Model, str]:
    """Return the named model, else the parent's, and a remark. Raises ModelError for a wrong name.

    `accepts_unknown`: another program asks the model and may know it. `is_lenient`: a wrong name in a file is ignored.
    """
    own = unwrap(inherited)
    is_wish = request.model is None and definition.is_model_wish
    if isinstance(named.failure, OutOfReach):
        return own, "" if is_wish else named.failure.explain(inherited.info)
    if named.failure is not None:
        if accepts_unknown or is_wish or (request.model is None and is_lenient):
            return own, ""
        raise ModelError(f"agent {quote(definition.name)}: {named.failure}") from named.failure
    if named.found is None or named.found.info.ref == inherited.info.ref:
        return own, ""
    return models.open(named.found.info), named.found.reason


def choose_main_model(
    definition: Definition, registry: ModelRegistry, choose_other: Callable[[], ModelChoice], listed: Sequence[str]
) -> ModelChoice | None:
    """Return the model of a main agent's file; None if it names none, or an optional one that is not available.

    `choose_other` returns the model that would be used otherwise: only a file that names a provider may choose another
    provider. Raises ModelError for a required model.
    """
    if definition.model in (None, "inherit"):
        return None
    try:
        if definition.source != "builtin" and (choice := follow_choice(definition.model, registry.names)) is not None:
            return choice
        return registry.reach(choose_other().info, listed).resolve(definition.model)
    except ModelError as error:
        if definition.is_model_wish:
            return None
        if not isinstance(error, OutOfReach):
            raise ModelError(f"agent {quote(definition.name)}: {error}") from error
        other = choose_other()
        return structs.replace(other, reason=f"agent {quote(definition.name)}: {error.explain(other.info)}")


def unwrap(model: Model) -> Model:
    """Return the model without wrappers: a child has its own budget and hooks, not its parent's."""
    while isinstance(model, WrappedModel):
        model = model.inner_model
    return model


def choose_level(*words: str | None) -> ThinkingLevel | None:
    """Return the first word that is a thinking level; files may contain anything."""
    return next((level for word in words for level in THINKING_LEVELS if level == word), None)


Ask: TypeAlias = Callable[[Model, ModelRequest, Draft], Awaitable[Reply]]
"""Asks a model; may wait first. MUST NOT raise."""


async def ask_model(model: Model, request: ModelRequest, draft: Draft) -> Reply:
    """Ask a model at once."""
    return await model.reply(request, draft)


class CurrentModel:
    """Delegates each reply to the run's current model and thinking level."""

    def __init__(
        self,
        read: Callable[[], tuple[Model, ThinkingLevel]],
        say: Callable[[str], None],
        limit: Callable[[], int | None] = lambda: None,
        mark: Callable[[ModelRequest], None] = lambda request: None,
        ask: Ask = ask_model,
    ) -> None:
        """`limit` returns the maximum reply length if it is less than the model's own; `mark` sets the cache marks.

        `ask` may wait before it asks the model.
        """
        self._ask = ask
        self._read = read
        self._say = say
        self._limit = limit
        self._mark = mark
        self._draft: Draft | None = None

    @property
    def info(self) -> ModelInfo:
        return self._read()[0].info

    @property
    def size(self) -> int:
        return 0 if self._draft is None else self._draft.size

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Ask the current model. MUST NOT raise."""
        model, thinking = self._read()
        request.thinking = draft.thinking = thinking
        if (limit := self._limit()) is not None:
            request.max_tokens = min(limit, model.info.max_tokens)
        self._mark(request)
        draft.say = self._say
        self._draft = draft
        try:
            return await self._ask(model, request, draft)
        finally:
            self._draft = None


class UnaskedModel:
    """Replaces a model that cannot process the request: every reply is an error with the reason."""

    def __init__(self, info: ModelInfo, reason: str) -> None:
        self.info = info
        self._reason = reason

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        return Reply(draft.finish("error", error=self._reason), Failure("request", self._reason))
