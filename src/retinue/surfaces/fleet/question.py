"""Renders the messages about questions of runs, as text for the model and data for the UI. Pure."""

from collections.abc import Sequence

from retinue.core.events import RunAnswered
from retinue.core.messages import CustomMessage, escape_element
from retinue.core.run import Question, Run
from retinue.engine.notify import QUESTION_TYPE

ANSWER_TYPE = "subagent-answer"
ANSWER_HINT = "The agent waits. Answer with answer_subagent; if only the user can know, ask the user first."


def render_question(run: Run, question: Question, now_ms: int) -> CustomMessage:
    """Return the message that tells a parent what its run asks."""
    text = f"{render_question_block(question)}\n{ANSWER_HINT}"
    options = {"options": list(question.options)} if question.options else {}
    details = {"questionId": question.id, "id": run.id, "description": run.description, "question": question.whole}
    return CustomMessage(QUESTION_TYPE, text, display=True, timestamp=now_ms, details=details | options)


def render_question_block(question: Question) -> str:
    elements = [("question-id", question.id), ("task-id", question.run_id), ("question", question.whole)]
    return _render_elements("task-question", [*elements, *(("option", option) for option in question.options)])


def render_answer(run: Run, closed: RunAnswered, now_ms: int) -> CustomMessage:
    """Return the message that tells a parent that the user has answered a question."""
    elements = [("question-id", closed.question_id), ("task-id", run.id), ("answer", closed.answer)]
    text = f"{_render_elements('task-answer', elements)}\nThe user has answered this question: do not answer it again."
    details = {"questionId": closed.question_id, "id": run.id, "description": run.description, "answer": closed.answer}
    return CustomMessage(ANSWER_TYPE, text, display=True, timestamp=now_ms, details=details)


def _render_elements(name: str, elements: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<{tag}>{escape_element(text)}</{tag}>" for tag, text in elements)
    return f"<{name}>{inner}</{name}>"
