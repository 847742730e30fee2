"""Tells the user once when a prompt and the runs it started have become expensive. Stops nothing by itself.

Front ends that can answer are asked whether to go on; for others it is a warning. Hard limits are budgets.
"""

from collections.abc import Callable

from retinue.core.events import Event, MessageFinished, Warned
from retinue.core.figures import count_noun
from retinue.core.messages import AssistantMessage
from retinue.core.run import Question, Run
from retinue.engine.clock import make_uuid
from retinue.engine.limits import GuardLimits
from retinue.engine.questions import PendingQuestions
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun

CONTINUE, STOP = "continue", "stop"


class SpendingGuard:
    """Counts the model calls of one main agent and its runs since its last prompt."""

    def __init__(
        self,
        main: LiveRun,
        questions: PendingQuestions,
        read_limits: Callable[[], GuardLimits],
        stop: Callable[[], None],
    ) -> None:
        """`stop` ends the main agent's work and all its runs."""
        self._main = main
        self._questions = questions
        self._read_limits = read_limits
        self._stop = stop
        self._asked = ""
        self.renew()
        main.bus.listen(self._hear, pieces=False, kinds=(MessageFinished,))

    def renew(self) -> None:
        """Count from zero: a new prompt begins."""
        self._usd, self._calls, self._has_told = 0.0, 0, False

    def watch(self, live: LiveRun, run: Run, request: RunRequest, parent: LiveRun) -> Callable[[], None]:
        """Count the calls of a run too; a scheduled run is not part of the prompt."""
        if request.skips_queue:
            return lambda: None
        return live.bus.listen(self._hear, pieces=False, kinds=(MessageFinished,))

    def close(self) -> None:
        self._questions.withdraw(self._asked)

    def _hear(self, event: Event) -> None:
        if not isinstance(event, MessageFinished) or not isinstance(event.message, AssistantMessage):
            return
        self._calls += 1
        self._usd += event.message.usage.cost.total
        if self._has_told or not (passed := self._find_passed()):
            return
        self._has_told = True
        run_id = self._main.setup.run_id
        calls = count_noun(self._calls, "model call")
        text = f"this prompt and its agents have cost ${self._usd:.2f} USD in {calls} ({passed})"
        if self._questions.has_frontend:
            question = Question(
                id=make_uuid(),
                run_id=run_id,
                kind="select",
                title="Continue?",
                text=text[0].upper() + text[1:],
                options=(CONTINUE, STOP),
                default=CONTINUE,
            )
            self._asked = question.id
            self._questions.post(question, lambda answer: self._stop() if answer == STOP else None)
        else:
            self._main.bus.publish(Warned(run_id=run_id, text=f"{text}; budget.costUsd sets a hard limit"))

    def _find_passed(self) -> str:
        limits = self._read_limits()
        if limits.cost_usd is not None and self._usd > limits.cost_usd:
            return f"guard.costUsd is {limits.cost_usd:g}"
        if limits.model_calls is not None and self._calls > limits.model_calls:
            return f"guard.modelCalls is {limits.model_calls}"
        return ""
