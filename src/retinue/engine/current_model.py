"""The model of a run as it is now: what a person chooses while the run works counts from its next reply on.

Knows the Model port only; who may choose is decided elsewhere.
"""

from collections.abc import Callable

from retinue.core.messages import ThinkingLevel
from retinue.core.model import Draft, Failure, Model, ModelInfo, Reply, Request


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

    async def reply(self, request: Request, draft: Draft) -> Reply:
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

    async def reply(self, request: Request, draft: Draft) -> Reply:
        """Fail. MUST NOT raise, as the model itself."""
        return Reply(draft.finish("error", error=self._reason), Failure("request", self._reason))
