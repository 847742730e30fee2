"""Which model a run asks, and how hard that thinks. The name of a model is looked up once for each run.

What a person chooses while the run works counts from its next reply on.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.errors import ModelError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.engine.request import RunRequest
from retinue.models.registry import ModelRegistry, OutOfReach, follow_choice
from retinue.models.resolve import ModelChoice


class ModelSource(Protocol):
    """Where models come from."""

    def resolve(self, query: str, *, is_choice: bool = False) -> ModelChoice:
        """The model a name means; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
        ...

    def open(self, info: ModelInfo) -> Model:
        """A model ready to be asked. Raises ModelError or ConfigError."""
        ...


@runtime_checkable
class WrappedModel(Protocol):
    """A model around another one."""

    inner_model: Model


@runtime_checkable
class LastingWrapper(Protocol):
    """What stays around the model of a run when a person chooses another one."""

    def rewrap(self, model: Model) -> Model:
        """The same around another model."""
        ...


class NamedModel(Struct, frozen=True):
    """The model that a request or an agent's file names, looked up."""

    name: str = ""
    """Empty for the parent's model."""
    is_choice: bool = False
    """Whether a person wrote the name."""
    found: ModelChoice | None = None
    failure: ModelError | None = None
    """Why it was not found."""

    @property
    def thinking(self) -> ThinkingLevel | None:
        """The level in its name."""
        return None if self.found is None else self.found.thinking


def find_model(definition: Definition, request: RunRequest, models: ModelSource) -> NamedModel:
    """Look up the model that the request names, else the one that the file names."""
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
    """The named model, else the parent's, and a remark. Raises ModelError for a name that must be right and is not.

    `accepts_unknown`: another program asks the model, and may know it; `is_lenient`: a wrong name in a file does not
    stop a run.
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
    """The model of a main agent's file; None when it names none, or wishes for one that is not there.

    `choose_other` tells what is asked without it: only a file that names a provider leads away from that one. Raises
    ModelError for a pinned one.
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
    """The model itself: a child spends on its own lease and has its own hooks, not its parent's."""
    while isinstance(model, WrappedModel):
        model = model.inner_model
    return model


def choose_level(*words: str | None) -> ThinkingLevel | None:
    """The first that is a level; a file may say anything."""
    return next((level for word in words for level in THINKING_LEVELS if level == word), None)


class CurrentModel:
    """Looks up the model and the thinking level at each reply."""

    def __init__(
        self,
        read: Callable[[], tuple[Model, ThinkingLevel]],
        say: Callable[[str], None],
        limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`limit` says how long a reply may be, where that is less than the model's own limit."""
        self._read = read
        self._say = say
        self._limit = limit
        self._draft: Draft | None = None

    @property
    def info(self) -> ModelInfo:
        """Of the model that would be asked now."""
        return self._read()[0].info

    @property
    def size(self) -> int:
        """How much there is of the reply that is arriving."""
        return 0 if self._draft is None else self._draft.size

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Ask it. MUST NOT raise, as the model itself."""
        model, thinking = self._read()
        request.thinking = draft.thinking = thinking
        if (limit := self._limit()) is not None:
            request.max_tokens = min(limit, model.info.max_tokens)
        draft.say = self._say
        self._draft = draft
        try:
            return await model.reply(request, draft)
        finally:
            self._draft = None


class UnaskedModel:
    """Stands for a model that cannot do what it would be asked: it is not asked, and each reply says why."""

    def __init__(self, info: ModelInfo, reason: str) -> None:
        self.info = info
        self._reason = reason

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Fail. MUST NOT raise, as the model itself."""
        return Reply(draft.finish("error", error=self._reason), Failure("request", self._reason))
