"""Questions of runs to the user: publishes them, waits, and receives the answers of a front end.

All runs of a main agent share one PendingQuestions. A question is published on the main agent's bus with the id of the
run that asks. Without a front end the default answer is used at once. MUST NOT know what the questions mean.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from retinue.core.errors import UsageError, quote
from retinue.core.events import Answered, Asked, Event
from retinue.core.run import Question

By = Literal["face", "policy", "nobody"]


class PendingQuestions:
    """Pending questions, in order of arrival."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._waiting: dict[str, tuple[Question, asyncio.Future[str]]] = {}
        self._faces = 0

    @property
    def has_frontend(self) -> bool:
        """Whether a front end is connected that could answer."""
        return self._faces > 0

    @property
    def waiting(self) -> list[Question]:
        return [question for question, _ in self._waiting.values()]

    @contextmanager
    def attend(self) -> Iterator[None]:
        """Register a front end that can answer. When the last one leaves, pending questions get their defaults."""
        self._faces += 1
        try:
            yield
        finally:
            self._faces -= 1
            if not self._faces:
                for question in self.waiting:
                    self._settle(question, question.default, "policy")

    async def ask(self, question: Question) -> str:
        """Return the user's answer, or the default without a front end. Cancelling withdraws the question."""
        if not self._faces:
            self._tell(question, question.default, "policy")
            return question.default
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = (question, future)
        self._publish(Asked(run_id=question.run_id, question=question))
        try:
            return await future
        finally:
            if self._waiting.pop(question.id, None) is not None:
                self._tell(question, "", "nobody")

    def post(self, question: Question, take: Callable[[str], None]) -> None:
        """Ask without waiting; `take` gets the answer. Only while there is a front end."""

        def settle(future: "asyncio.Future[str]") -> None:
            if not future.cancelled():
                take(future.result())

        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.add_done_callback(settle)
        self._waiting[question.id] = (question, future)
        self._publish(Asked(run_id=question.run_id, question=question))

    def withdraw(self, question_id: str) -> None:
        """Remove a posted question that nobody has answered."""
        if (waiting := self._waiting.pop(question_id, None)) is not None:
            waiting[1].cancel()
            self._tell(waiting[0], "", "nobody")

    def answer(self, question_id: str, answer: str) -> bool:
        """Answer a question; False if it is no longer pending. Raises UsageError for an unknown option.

        Only front ends call this: nothing that a model writes can answer a question.
        """
        waiting = self._waiting.get(question_id)
        if waiting is None:
            return False
        question, _ = waiting
        if not question.accepts(answer):
            accepted = ", ".join(question.options)
            raise UsageError(f"unknown answer {quote(answer)}; choose one of: {accepted}")
        self._settle(question, answer, "face")
        return True

    def _settle(self, question: Question, answer: str, by: By) -> None:
        _, future = self._waiting.pop(question.id)
        self._tell(question, answer, by)
        if not future.done():
            future.set_result(answer)

    def _tell(self, question: Question, answer: str, by: By) -> None:
        self._publish(Answered(run_id=question.run_id, question_id=question.id, answer=answer, by=by))
