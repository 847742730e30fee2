"""Where runs of one main agent ask a person, and where the answers come in.

One desk for the whole tree: a question of any run, at any depth, is published on the main agent's bus under the name
of the run that asks. Without a face the default counts at once. Must not know what is asked, nor how a face looks.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from retinue.core.errors import UsageError, quote
from retinue.core.events import Answered, Asked, Event
from retinue.core.run import Question

By = Literal["face", "policy", "nobody"]


class Desk:
    """Questions that wait, in the order they came."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._waiting: dict[str, tuple[Question, asyncio.Future[str]]] = {}
        self._faces = 0

    @property
    def has_face(self) -> bool:
        """Whether anybody is there who could answer."""
        return self._faces > 0

    @property
    def waiting(self) -> list[Question]:
        """What nobody has answered yet, oldest first."""
        return [question for question, _ in self._waiting.values()]

    @contextmanager
    def attend(self) -> Iterator[None]:
        """Somebody is there to answer; when the last one leaves, the defaults count."""
        self._faces += 1
        try:
            yield
        finally:
            self._faces -= 1
            if not self._faces:
                for question in self.waiting:
                    self._settle(question, question.default, "policy")

    async def ask(self, question: Question) -> str:
        """The answer of a person, or the default when none is there. A cancel takes the question back."""
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

    def answer(self, question_id: str, answer: str) -> bool:
        """Settle a question; False when it waits no longer. Raises UsageError for an answer it does not have.

        Only faces call this: nothing a model says gets here.
        """
        waiting = self._waiting.get(question_id)
        if waiting is None:
            return False
        question, _ = waiting
        if question.options and answer not in question.options:
            accepted = ", ".join(question.options)
            raise UsageError(f"{quote(answer)} is no answer to this question; there are: {accepted}")
        self._settle(question, answer, "face")
        return True

    def _settle(self, question: Question, answer: str, by: By) -> None:
        _, future = self._waiting.pop(question.id)
        self._tell(question, answer, by)
        if not future.done():
            future.set_result(answer)

    def _tell(self, question: Question, answer: str, by: By) -> None:
        self._publish(Answered(run_id=question.run_id, question_id=question.id, answer=answer, by=by))
