"""Questions of runs to the agents that started them: records them, waits, and takes the answer of a parent or a user.

A question outlives its process: a run whose process died while it waited continues with the answer. MUST NOT know
surfaces: the notifier shows a question to the parent, front ends show it to the user.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import RunAnswered, RunAsked
from retinue.core.run import Question, Run
from retinue.engine.backend import Backend
from retinue.engine.run_table import RunTable
from retinue.tools.ask_parent import NO_ANSWER

AnsweredBy: TypeAlias = Literal["parent", "user", "nobody", "timeout", "withdrawn"]
_TITLE_CHARS = 120
_CLOSED: dict[AnsweredBy, str] = {
    "parent": "was already answered: {}",
    "user": "was already answered by the user: {}",
    "nobody": "is closed: nobody answered it, and the agent decides itself",
    "timeout": "is closed: nobody answered it in time, and the agent decides itself",
    "withdrawn": "is closed: the agent that asked it has ended",
}


class QuestionPorts(Protocol):
    """What the questions of one main agent need from its Manager."""

    def step_aside(self, run: Run) -> AbstractAsyncContextManager[None]:
        """Let other runs have the slot of a run that waits; leaving the context waits for a slot."""
        ...

    def go_on(self, run: Run, text: str) -> None:
        """Continue a run whose process died while it waited. Raises SpawnRefused."""
        ...

    def find_reader(self, run: Run) -> str:
        """Return the run that is shown the questions of a run."""
        ...

    def show(self, run: Run, question: Question, closed: RunAnswered | None = None) -> None:
        """Show the parent a question, or that it is closed."""
        ...


class ParentQuestions:
    """The questions of all runs of one main agent. The open ones are in the table of runs."""

    def __init__(
        self,
        ports: QuestionPorts,
        runs: RunTable,
        backend: Backend,
        clock: Clock,
        *,
        find_limit_s: Callable[[], float | None],
        has_user: Callable[[], bool],
    ) -> None:
        """`has_user` returns whether a front end is connected whose user can answer."""
        self._ports = ports
        self._runs = runs
        self._backend = backend
        self._clock = clock
        self._find_limit_s = find_limit_s
        self._has_user = has_user
        self._asked = 0
        self._answers: dict[str, asyncio.Future[str]] = {}
        """By question of a run that waits in this process."""
        self._closed: dict[str, RunAnswered] = {}

    async def ask(self, run_id: str, text: str, options: Sequence[str] = ()) -> str:
        """Ask the parent of a run and return the answer, or that there is none.

        The parent of a run in the foreground waits for that run, so only a user can answer.
        """
        run = self._runs[run_id]
        if not run.is_background and not self._has_user():
            return NO_ANSWER
        self._asked += 1
        title = " ".join(text.split())
        question = Question(
            id=f"q{self._asked}",
            run_id=run_id,
            agent=run.agent,
            kind="ask",
            title=title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…",
            text="" if title == text and len(title) <= _TITLE_CHARS else text,
            options=tuple(options),
            default="",
        )
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[question.id] = answer
        self._runs.tell(RunAsked(run_id=run_id, question=question, at_ms=self._clock.now_ms()))
        self._open(run, question)
        try:
            async with self._ports.step_aside(run):
                return await answer
        finally:
            self._answers.pop(question.id, None)

    def answer(self, question_id: str, text: str, by: AnsweredBy) -> Run:
        """Answer a question, which may be named by its run; an empty text lets the run decide. Raises RetinueError."""
        run, question = self.find(question_id)
        text = text.strip() or NO_ANSWER
        answer = self._answers.get(question.id)
        if answer is None:
            self._ports.go_on(run, f'Answer to your question "{question.whole}": {text}')
            run = self._runs[run.id]
        self._close(run, question, text, by)
        if answer is not None and not answer.done():
            answer.set_result(text)
        return run

    def withdraw(self, run: Run) -> bool:
        """Close the questions of a run that needs no answer any more; False if there are none."""
        questions = run.questions
        for question in questions:
            self._close(run, question, "", "withdrawn")
        return bool(questions)

    def settle_below(self, parent_id: str) -> None:
        """Close the questions that this run has seen and left open, if no user can answer them."""
        seen = [run for run in self._runs.list_asking() if self._ports.find_reader(run) == parent_id]
        for run in seen if not self._has_user() else ():
            for question in run.questions:
                self._give_up(run, question, "nobody")

    def recover(self, asked: int) -> None:
        """Show the questions of dead runs again; those of runs that continue by themselves are withdrawn.

        `asked` is the number of questions of all earlier processes.
        """
        self._asked = asked
        for run in self._runs.list_asking():
            if not run.status.is_final:
                self.withdraw(run)
            for question in run.questions:
                self._open(run, question)

    def _open(self, run: Run, question: Question) -> None:
        if (limit_s := self._find_limit_s()) is not None:
            self._backend.start(f"question-{question.id}", self._expire(run.id, question, limit_s))
        self._ports.show(run, question)

    async def _expire(self, run_id: str, question: Question, limit_s: float) -> None:
        await self._clock.sleep(limit_s)
        run = self._runs.find(run_id)
        if run is not None and question in run.questions:
            self._give_up(run, question, "timeout")

    def _give_up(self, run: Run, question: Question, by: AnsweredBy) -> None:
        try:
            self.answer(question.id, "", by)
        except RetinueError:  # it cannot be continued any more
            self._close(run, question, "", "withdrawn")

    def _close(self, run: Run, question: Question, text: str, by: AnsweredBy) -> None:
        event = self._closed[question.id] = RunAnswered(run_id=run.id, question_id=question.id, answer=text, by=by)
        self._runs.tell(event)
        if by != "timeout":
            self._backend.cancel(f"question-{question.id}")
        self._ports.show(run, question, event)

    def find(self, question_id: str, is_meant: Callable[[Run], bool] = lambda run: True) -> tuple[Run, Question]:
        """Return an open question and its run, only of runs that are meant. Raises UsageError."""
        asking = list(filter(is_meant, self._runs.list_asking()))
        for run in asking:
            for question in run.questions:
                if question_id == question.id or (question_id == run.id and len(run.questions) == 1):
                    return run, question
        closed = self._closed.get(question_id)
        if closed is not None and ((past := self._runs.find(closed.run_id)) is None or is_meant(past)):
            reason = _CLOSED[closed.by].format(quote(closed.answer, 200))
            raise UsageError(f"Question {quote(question_id)} {reason}.")
        known = ", ".join(question.id for run in asking for question in run.questions) or "none"
        raise UsageError(f"There is no question {quote(question_id, 80)}. Open questions: {known}.")
