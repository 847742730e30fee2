"""Questions of runs and notices, in pi's extension UI protocol.

A question shows the whole action, escaped, with the name of the run. A cancelled question does not allow the action.
"""

import uuid
from typing import Any, Literal

from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Answered, Asked, Event, RunAnswered, RunAsked
from retinue.core.run import Question
from retinue.core.terminal import escape_text
from retinue.serve.rpc.command import RpcConnection


class Questions:
    """Open questions that were sent to the caller."""

    def __init__(self, link: RpcConnection) -> None:
        self._link = link
        self._asked: dict[str, Question] = {}

    def hear(self, event: Event) -> None:
        """Send a new question; forget an answered one."""
        if isinstance(event, Asked | RunAsked):
            self.show(event.question)
        elif isinstance(event, Answered | RunAnswered):
            self._asked.pop(event.question_id, None)

    def show(self, question: Question) -> None:
        self._asked[question.id] = question
        self._link.send(_render(question))

    def answer(self, fields: dict[str, Any]) -> None:
        """Handle an `extension_ui_response`; like pi, ignores one that matches no question."""
        question_id = fields.get("id")
        question = self._asked.pop(question_id, None) if isinstance(question_id, str) else None
        if question is None:
            return
        try:
            self._link.crew.answer(question.id, _read(question, fields))
        except UsageError:
            # Not a valid answer: use the safe default.
            self._link.crew.answer(question.id, question.default)
        except RetinueError as error:
            send_notice(self._link, str(error), "error")


def _is_plain(question: Question) -> bool:
    """Whether the question has exactly two answers, yes and no."""
    return question.kind in ("approval", "confirm") and len(question.options) == 2


def _render(question: Question) -> dict[str, Any]:
    title = escape_text(f"{question.agent or 'main agent'} ({question.run_id}): {question.title}")
    request: dict[str, Any] = {"type": "extension_ui_request", "id": question.id}
    text = escape_text(question.text)
    if _is_plain(question):
        return {**request, "method": "confirm", "title": title, "message": text}
    title = f"{title}\n{text}" if text else title
    if question.options:
        return {**request, "method": "select", "title": title, "options": question.options}
    return {**request, "method": "input", "title": title, "placeholder": ""}


def _read(question: Question, fields: dict[str, Any]) -> str:
    """Map a response to an answer of the question."""
    if fields.get("cancelled") is True:
        return question.default
    if _is_plain(question):
        # Use the meaning of the options where known: their order does not tell which one allows.
        yes, no = ("allow", "deny") if set(question.options) == {"allow", "deny"} else question.options
        return yes if fields.get("confirmed") is True else no
    value = fields.get("value")
    return value if isinstance(value, str) else question.default


def send_notice(link: RpcConnection, text: str, kind: Literal["info", "warning", "error"] = "info") -> None:
    """Show a text to the user of the calling program; no answer is expected."""
    link.send(
        {
            "type": "extension_ui_request",
            "id": str(uuid.uuid4()),
            "method": "notify",
            "message": escape_text(text),
            "notifyType": kind,
        }
    )
