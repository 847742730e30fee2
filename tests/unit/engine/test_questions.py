import asyncio

import pytest

from retinue.core.errors import UsageError
from retinue.core.events import Answered, Asked
from retinue.core.run import Question
from retinue.engine.questions import PendingQuestions

QUESTION = Question(id="q1", run_id="r1", agent="writer", title="Run bash?", text="rm -rf build")


def open_desk():
    events = []
    return PendingQuestions(events.append), events


async def test_nobody_there_means_default():
    desk, events = open_desk()
    assert await desk.ask(QUESTION) == "deny"
    assert events == [Answered(run_id="r1", question_id="q1", answer="deny", by="policy")]


async def test_face_answers_by_name():
    desk, events = open_desk()
    with desk.attend():
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(desk.ask(QUESTION))
            await asyncio.sleep(0)
            assert desk.waiting == [QUESTION]
            assert desk.answer("q1", "allow")
        assert asked.result() == "allow"
    assert events == [Asked(run_id="r1", question=QUESTION), Answered(run_id="r1", question_id="q1", answer="allow")]
    assert not desk.answer("q1", "allow")


async def test_foreign_answer_settles_nothing():
    desk, _ = open_desk()
    with desk.attend():
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(desk.ask(QUESTION))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="allow, deny"):
                desk.answer("q1", "yes")
            desk.answer("q1", "deny")
        assert asked.result() == "deny"


async def test_leaving_face_settles_questions():
    desk, events = open_desk()
    async with asyncio.TaskGroup() as group:
        with desk.attend():
            asked = group.create_task(desk.ask(QUESTION))
            await asyncio.sleep(0)
    assert asked.result() == "deny"
    assert events[-1] == Answered(run_id="r1", question_id="q1", answer="deny", by="policy")


async def test_cancel_takes_question_back():
    desk, events = open_desk()
    with desk.attend():
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(desk.ask(QUESTION))
            await asyncio.sleep(0)
            asked.cancel()
    assert desk.waiting == []
    assert events[-1] == Answered(run_id="r1", question_id="q1", answer="", by="nobody")


def test_accepted_answers():
    question = Question(id="q", run_id="r", title="?", reason_for="deny", also=("always",))
    answers = ("allow", "deny", "always", "deny: not there", "allow: why", "deny ", "perhaps", "")
    assert [answer for answer in answers if question.accepts(answer)] == ["allow", "deny", "always", "deny: not there"]
