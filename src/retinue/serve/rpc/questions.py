"""Questions of runs and notices, in pi's extension UI protocol.

What a run wants to do is told in full, escaped, under the name of the run. A caller that cancels has not allowed it.
"""

import uuid
from typing import Any, Literal

from retinue.core.errors import UsageError
from retinue.core.events import Answered, Asked, Event
from retinue.core.run import Question
from retinue.core.terminal import escape_text
from retinue.serve.rpc.command import Link


class Questions:
    """The questions that one caller has been asked."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._asked: dict[str, Question] = {}

    def hear(self, event: Event) -> None:
        """Ask what is asked; forget what is settled."""
        if isinstance(event, Asked):
            self._asked[event.question.id] = event.question
            self._link.send(_render(event.question))
        elif isinstance(event, Answered):
            self._asked.pop(event.question_id, None)

    def answer(self, fields: dict[str, Any]) -> None:
        """Take an `extension_ui_response`; one that fits no question is ignored, as pi does."""
        question_id = fields.get("id")
        question = self._asked.pop(question_id, None) if isinstance(question_id, str) else None
        if question is None:
            return
        try:
            self._link.crew.questions.answer(question.id, _read(question, fields))
        except UsageError:
            # No answer of this question: the cautious one counts.
            self._link.crew.questions.answer(question.id, question.default)


def _is_plain(question: Question) -> bool:
    """Whether yes and no are all the answers there are."""
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
    """The answer that a response means."""
    if fields.get("cancelled") is True:
        return question.default
    if _is_plain(question):
        # By their meaning where it is known: which of the two comes first is no safe sign.
        yes, no = ("allow", "deny") if set(question.options) == {"allow", "deny"} else question.options
        return yes if fields.get("confirmed") is True else no
    value = fields.get("value")
    return value if isinstance(value, str) else question.default


def send_notice(link: Link, text: str, kind: Literal["info", "warning", "error"] = "info") -> None:
    """Show a text to whoever sits before the caller; no answer is expected."""
    link.send(
        {
            "type": "extension_ui_request",
            "id": str(uuid.uuid4()),
            "method": "notify",
            "message": escape_text(text),
            "notifyType": kind,
        }
    )
