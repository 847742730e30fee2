from typing import Any

import pytest

from retinue.core.events import Answered, Asked
from retinue.core.run import Question
from retinue.serve.rpc.questions import Questions

PLAIN = Question(id="q", run_id="r1", agent="Explore", title="Allow bash?", text="rm -r \x1b[2J")
WORDS = Question(id="q", run_id="r1", kind="input", title="Which branch?", options=(), default="main")


class Caller:
    """Both ends of a link: what is sent, and what is answered."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.answers: list[tuple[str, str]] = []
        self.crew = self.questions = self
        self.send = self.sent.append

    def answer(self, question_id, answer):
        self.answers.append((question_id, answer))
        return True


def put(question, *responses):
    caller = Caller()
    questions = Questions(caller)
    questions.hear(Asked(run_id="r1", question=question))
    for response in responses:
        questions.answer({"id": "q", **response})
    return caller


def test_plain_question_is_confirmed():
    assert put(PLAIN).sent == [
        {
            "type": "extension_ui_request",
            "id": "q",
            "method": "confirm",
            "title": "Explore (r1): Allow bash?",
            "message": "rm -r \\x1b[2J",
        }
    ]


@pytest.mark.parametrize(
    ("response", "answer"),
    [({"confirmed": True}, "allow"), ({"confirmed": 1}, "deny"), ({"value": "allow"}, "deny"), ({}, "deny")],
)
def test_yes_is_a_plain_true(response, answer):
    assert put(PLAIN, response).answers == [("q", answer)]


def test_question_is_answered_once():
    assert put(PLAIN, {"confirmed": False}, {"confirmed": True}).answers == [("q", "deny")]


def test_free_words_are_passed_on():
    caller = put(WORDS, {"value": "topic"})
    assert (caller.sent[0]["method"], caller.answers) == ("input", [("q", "topic")])
    assert put(WORDS, {"cancelled": True}).answers == [("q", "main")]


def test_settled_question_takes_no_answer():
    caller = Caller()
    questions = Questions(caller)
    questions.hear(Asked(run_id="r1", question=PLAIN))
    questions.hear(Answered(run_id="r1", question_id="q", answer="", by="nobody"))
    questions.answer({"id": "q", "confirmed": True})
    assert caller.answers == []
