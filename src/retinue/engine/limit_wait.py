"""Asks the model of one run; while a usage limit of its provider lasts, the run waits instead.

The loop does not notice: it gets the reply when there is one. MUST NOT know other runs.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.events import Event, ModelChanged, RunContinued, RunPaused, Warned
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.core.run import Reason
from retinue.engine.model_choice import Ask, LastingWrapper, replace_model
from retinue.engine.scope import Scope, run_shielded
from retinue.engine.warm_up import WarmUp
from retinue.models.gate import Gates, LimitPause, Passage
from retinue.models.retry import RetryPolicy

_RELEASED_S = 2.0
"""How long a cancelled call tries to let another process probe."""


class Fallbacks(Struct, frozen=True):
    """Models that a run asks while the limit of its own model lasts."""

    models: Sequence[Callable[[], Model | None]] = ()
    """Open the models, in the order of preference; None if one cannot be used."""
    after_s: float = 300.0
    """How long the run waits first."""
    agent: str = ""
    """The name that people know the run by; empty for the main agent."""


class LimitWait:
    """Lets one run pass the gates of its providers."""

    def __init__(
        self,
        run_id: str,
        gates: Gates,
        scope: Scope,
        clock: Clock,
        publish: Callable[[Event], None],
        find_policy: Callable[[], RetryPolicy],
        fallbacks: Fallbacks | None = None,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._find_policy = find_policy
        self._run_id = run_id
        self._gates = gates
        self._scope = scope
        self._clock = clock
        self._publish = publish
        self._is_held = False
        self.is_asking = False
        """Whether a call is under way."""
        self._fallbacks = fallbacks or Fallbacks()
        self._warm_up = warm_up
        self._wrapped: tuple[Model, Model | None] | None = None
        """The last model, and the same with the wait inside of its lasting wrappers; None if it has none."""
        self._since_ms = 0
        """When it began to wait; 0 if its own model answers."""
        self._substitute = ""
        self.pause: LimitPause | None = None
        """What the run waits for, or waited for when its last process ended."""

    @property
    def is_waiting(self) -> bool:
        return self._is_held

    @property
    def can_fall_back(self) -> bool:
        return self._is_held and self._find_fallback() is not None

    def fall_back(self) -> None:
        """Ask a fallback model now, until the own model can be asked again."""
        if self.pause is not None:
            self._since_ms = -1
            self._gates.wake(self.pause.provider)

    async def ask(self, model: Model, request: ModelRequest, draft: Draft) -> Reply:
        """Ask a model as soon as it accepts requests. MUST NOT raise.

        The wait is inside of lasting wrappers such as hooks, which may take their time and must be asked only once.
        """
        if self._wrapped is None or self._wrapped[0] is not model:
            bare: Model = model
            while isinstance(bare, LastingWrapper):
                bare = bare.inner_model
            around = None if bare is model else replace_model(model, _LimitedModel(bare, self._ask))
            self._wrapped = model, around
        limited = self._wrapped[1]
        return await (self._ask(model, request, draft) if limited is None else limited.reply(request, draft))

    async def _ask(self, own: Model, request: ModelRequest, draft: Draft) -> Reply:
        while True:
            model, passage = await self.choose(own)
            draft.info, draft.started_ms = model.info, self._clock.now_ms()
            try:
                reply = await self._send(model, request, draft)
            except BaseException:
                self.give_up(passage)
                await run_shielded(self.share(passage, model.info, is_known=False), _RELEASED_S)
                raise
            is_refused = self.leave(passage, model.info, reply.failure)
            await self.share(passage, model.info)
            if not is_refused or draft.has_content:
                return reply

    async def _send(self, model: Model, request: ModelRequest, draft: Draft) -> Reply:
        if self._warm_up is None:
            return await model.reply(request, draft)
        async with AsyncExitStack() as stack:
            with self._scope.pause_idle():
                await stack.enter_async_context(self._warm_up.join(model.info, request, draft))
            return await model.reply(request, draft)

    async def choose(self, own: Model, *, claims: bool = True) -> tuple[Model, Passage]:
        """Wait until the model of the run or a fallback model may be asked; `claims` as for `Gates.enter`."""
        model, passage = own, await self._enter(own.info, self._find_longest_wait, claims=claims)
        if passage is None:
            model = self._find_fallback() or own
            passage = await self._enter(model.info, claims=claims) or Passage()
        self._tell_substitute("" if model is own else model.info.ref, own)
        if not passage.is_probe:
            self._end()
        self.is_asking = True
        return model, passage

    async def _enter(
        self, info: ModelInfo, may_leave: Callable[[LimitPause], float | None] | None = None, *, claims: bool
    ) -> Passage | None:
        """Wait until a model may be asked; None if the run would rather ask a fallback model."""
        try:
            return await self._gates.enter(info, self._begin, may_leave, claims=claims)
        finally:
            self._release()

    async def close(self, passage: Passage, info: ModelInfo, provider: str, until_ms: int) -> None:
        """Record a limit that a child process has reached; at a provider that the run does not ask, wait for it."""
        if provider == info.provider:
            self.is_asking = False
            self._gates.close(passage, info, until_ms)
            # A child that knows the limits of this process has told the others itself.
            await self.share(passage, info, is_known=not self._gates.covers_children)
            return
        self.leave(passage, info, None)
        await self.share(passage, info)
        info = ModelInfo(provider, "", "", account=self._run_id)  # a gate of its own: the run does not know the key
        self._gates.close(Passage(), info, until_ms)
        self.leave(await self._enter(info, claims=False) or Passage(), info, None)

    def leave(self, passage: Passage, info: ModelInfo, failure: Failure | None) -> bool:
        """Record the result of a call; returns whether a limit refused it."""
        self.is_asking = False
        is_refused = self._gates.leave(passage, info, failure, self._find_policy())
        if not is_refused:
            self._end()
        return is_refused

    def give_up(self, passage: Passage) -> None:
        self.is_asking = False
        self._gates.give_up(passage)

    async def share(self, passage: Passage, info: ModelInfo, *, is_known: bool = True) -> None:
        """Tell other processes what was learnt from a call: nothing, if it was cancelled."""
        await self._gates.share(passage, info, is_known=is_known)

    def _find_longest_wait(self, pause: LimitPause) -> float | None:
        """Seconds until the run asks a fallback model; None if there is none that can be asked."""
        if not self._fallbacks.models or self._find_fallback() is None:
            return None
        now_ms = self._clock.now_ms()
        self._since_ms = self._since_ms or now_ms
        return 0.0 if self._since_ms < 0 else self._fallbacks.after_s - (now_ms - self._since_ms) / 1000

    def _find_fallback(self) -> Model | None:
        models = (open_model() for open_model in self._fallbacks.models)
        return next((each for each in models if each is not None and self._gates.find_pause(each.info) is None), None)

    def _tell_substitute(self, ref: str, own: Model) -> None:
        """Show and record which model answers, if that has changed."""
        if not ref:
            self._since_ms = 0
        if ref == self._substitute:
            return
        self._substitute = ref
        provider, _, model_id = (ref or own.info.ref).partition("/")
        self._publish(ModelChanged(run_id=self._run_id, provider=provider, model_id=model_id))
        again = f"{own.info.ref} is available again" if not ref else f"{own.info.provider}: limit reached"
        who = f"agent {self._fallbacks.agent}: " if self._fallbacks.agent else ""
        self._publish(Warned(run_id=self._run_id, text=f"{who}{again}; continuing with {ref or own.info.ref}"))

    def _begin(self, pause: LimitPause) -> None:
        self.pause = pause
        if not self._is_held:
            self._is_held = True
            self._scope.hold()
        self._publish(RunPaused(run_id=self._run_id, until_ms=pause.until_ms, provider=pause.provider, gate=pause.gate))

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._scope.release()

    def settle(self, reason: Reason) -> None:
        """The run has ended; if that is final, it does not wait any more."""
        if reason not in (Reason.LIMIT, Reason.PARENT, Reason.CRASH):
            self._end()

    def _end(self) -> None:
        if self.pause is not None:
            self.pause = None
            self._publish(RunContinued(run_id=self._run_id))


class _LimitedModel:
    """The model of a run inside of its lasting wrappers."""

    def __init__(self, model: Model, ask: Ask) -> None:
        self._model = model
        self._ask = ask

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        return await self._ask(self._model, request, draft)
