"""Asks the model of one run; while a usage limit of its provider lasts, the run waits instead.

The loop does not notice: it gets the reply when there is one. MUST NOT know other runs.
"""

from collections.abc import Callable

from retinue.core.clock import Clock
from retinue.core.events import Event, RunContinued, RunPaused
from retinue.core.model import Draft, Model, ModelRequest, Reply
from retinue.core.run import Reason
from retinue.engine.scope import Scope
from retinue.models.gate import Gates, LimitPause, Passage
from retinue.models.retry import RetryPolicy


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
    ) -> None:
        self._find_policy = find_policy
        self._run_id = run_id
        self._gates = gates
        self._scope = scope
        self._clock = clock
        self._publish = publish
        self._is_held = False
        self.pause: LimitPause | None = None
        """What the run waits for, or waited for when its last process ended."""

    @property
    def is_waiting(self) -> bool:
        return self._is_held

    async def ask(self, model: Model, request: ModelRequest, draft: Draft) -> Reply:
        """Ask a model as soon as it accepts requests. MUST NOT raise."""
        while True:
            info = model.info
            try:
                passage = await self._gates.enter(info, self._begin) or Passage()
            finally:
                self._release()
            if self.pause is not None:
                draft.started_ms = self._clock.now_ms()
                if not passage.is_probe:
                    self._end()
            try:
                reply = await model.reply(request, draft)
            except BaseException:
                self._gates.give_up(passage)
                raise
            is_refused = self._gates.leave(passage, info, reply.failure, self._find_policy())
            if not is_refused or draft.has_content:
                if not is_refused:
                    self._end()
                return reply

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
