import asyncio
from contextlib import nullcontext

import pytest

from retinue import Reason, Request, Retinue, Status
from retinue.core.errors import UsageError
from retinue.core.events import RunAnswered, RunAsked, RunFinished, RunStarted
from retinue.core.messages import CustomMessage, ToolResultMessage
from tests.flows.crew_world import call, script, to

APPROVED = Request(approve=True)
NO_ANSWER = "no answer: decide yourself and say so"
LOOK = call("Agent", subagent_type="Explore", prompt="look", description="a look")
ASK = call("ask_parent", question="Which <port>?", options=["80", "8080"])
ANSWER = call("answer_subagent", id="q1", text="8080")
BEGIN = [to("^begin", calls=[LOOK]), to("^begin", text="started")]
CHILD = [to("^look", calls=[ASK]), to("^look", text="found")]
END = to("task-notification", text="all done")


class Heard:
    """The events of some kinds, and a way to wait for one."""

    def __init__(self, crew, *kinds):
        self.events, self._changed = [], asyncio.Event()
        self._kinds = kinds or (RunAsked, RunAnswered)
        crew.listen(self._hear)

    def _hear(self, event):
        if isinstance(event, self._kinds):
            self.events.append(event)
            self._changed.set()

    async def wait(self, kind):
        async with asyncio.timeout(10):
            while not any(isinstance(event, kind) for event in self.events):
                self._changed.clear()
                await self._changed.wait()

    @property
    def words(self):
        return [event.by if isinstance(event, RunAnswered) else type(event).__name__ for event in self.events]


def results(crew, run_id, name="ask_parent"):
    messages = crew.session_runs.read_messages(run_id) if run_id else crew.history.list_messages()
    found = [message for message in messages if isinstance(message, ToolResultMessage) and message.tool_name == name]
    return [message.content[0].text for message in found]


def told(crew):
    return [str(m.content) for m in crew.history.list_messages() if isinstance(m, CustomMessage)]


async def test_parent_answers_its_child(tmp_path):
    replies = [*BEGIN, *CHILD, to("task-question", calls=[ANSWER]), to("task-question", text="answered")]
    async with Retinue(tmp_path, model=script(tmp_path, *replies, END)) as crew:
        heard = Heard(crew)
        outcome = await crew.prompt("begin", settle=True)
        (run,) = await crew.runs()
        assert (outcome.text, run.status, results(crew, run.id)) == ("all done", Status.COMPLETED, ["8080"])
        assert heard.words == ["RunAsked", "parent"]
        assert told(crew)[0].startswith(
            f"<task-question><question-id>q1</question-id><task-id>{run.id}</task-id>"
            "<question>Which &lt;port&gt;?</question><option>80</option><option>8080</option></task-question>"
        )


async def test_second_answer_is_refused(tmp_path):
    twice = to("task-question", calls=[ANSWER, call("answer_subagent", id="q1", text="80")])
    replies = [*BEGIN, *CHILD, twice, to("task-question", calls=[call("answer_subagent", id="q7", text="x")])]
    model = script(tmp_path, *replies, to("task-question", text="answered"), END)
    async with Retinue(tmp_path, model=model) as crew:
        await crew.prompt("begin", settle=True)
        (run,) = await crew.runs()
        assert results(crew, "", "answer_subagent") == [
            f"Answered. Agent {run.id} continues with your answer.",
            "Question 'q1' was already answered: '8080'.",
            "There is no question 'q7'. Open questions: none.",
        ]


async def test_idle_main_agent_is_woken(tmp_path):
    replies = [*BEGIN, *CHILD, to("task-question", calls=[ANSWER]), to("task-question", text="answered")]
    async with Retinue(tmp_path, model=script(tmp_path, *replies, END)) as crew:
        await crew.prompt("begin")
        (run,) = await crew.runs()
        assert (await run.wait(10)).text == "found"


async def test_user_answers_and_parent_is_told(tmp_path):
    seen = to("task-question", text="I leave that to the user")
    async with Retinue(tmp_path, model=script(tmp_path, *BEGIN, *CHILD, seen, to("task-answer", text="fine"))) as crew:
        with crew.questions.attend():
            heard = Heard(crew)
            await crew.prompt("begin")
            await heard.wait(RunAsked)
            (question,) = crew.list_questions()
            async with asyncio.timeout(10):
                while not any("task-question" in text for text in told(crew)) or crew.is_busy:
                    await asyncio.sleep(0.01)
            assert (question.title, question.options) == ("Which <port>?", ("80", "8080"))
            assert crew.answer(question.id, "9000") and not crew.answer(question.id, "80")
            (run,) = await crew.runs()
            assert (await run.wait(10)).text == "found"
            await crew.prompt("next")
        assert results(crew, run.id) == ["9000"]
        assert "<task-answer><question-id>q1</question-id>" in told(crew)[-1]
        assert heard.words == ["RunAsked", "user"]


async def test_answered_question_is_not_shown(tmp_path):
    slow, late = to("^begin", text="started", delay_ms=600), to("^look", calls=[ASK], delay_ms=150)
    async with Retinue(tmp_path, model=script(tmp_path, BEGIN[0], slow, late, CHILD[1], END)) as crew:
        with crew.questions.attend():
            heard = Heard(crew)
            async with asyncio.TaskGroup() as group:
                group.create_task(crew.prompt("begin", settle=True))
                await heard.wait(RunAsked)
                crew.answer("q1", "80")
        assert not any("task-question" in text or "task-answer" in text for text in told(crew))


async def test_ignored_question_gets_no_answer(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *BEGIN, *CHILD, to("task-question", text="hm"), END)) as crew:
        heard = Heard(crew)
        outcome = await crew.prompt("begin", settle=True)
        (run,) = await crew.runs()
        assert (outcome.text, heard.words) == ("all done", ["RunAsked", "nobody"])
        assert results(crew, run.id) == [NO_ANSWER]


async def test_question_expires(tmp_path):
    limits = {"answer_seconds": 0.1}
    async with Retinue(tmp_path, model=script(tmp_path, *CHILD), limits=limits) as crew:
        with crew.questions.attend():
            heard, run = Heard(crew), await crew.spawn("Explore", "look")
            assert (await run.wait(10)).text == "found"
            assert (heard.words, results(crew, run.id)) == (["RunAsked", "timeout"], [NO_ANSWER])
            with pytest.raises(UsageError, match="nobody answered it in time"):
                crew._here.find_subagents().manager.questions.answer("q1", "80", "user")


async def test_waiting_child_is_not_idle(tmp_path):
    limits = {"idle_seconds": 0.2, "tool_seconds": 0.2}
    async with Retinue(tmp_path, model=script(tmp_path, *CHILD), limits=limits) as crew:
        with crew.questions.attend():
            heard, run = Heard(crew), await crew.spawn("Explore", "look")
            await heard.wait(RunAsked)
            await asyncio.sleep(0.8)
            crew.answer("q1", "80")
            assert (await run.wait(10)).text == "found"


async def test_waiting_child_holds_no_slot(tmp_path):
    asker = [to("^one", calls=[ASK]), to("^one", text="one done")]
    model = script(tmp_path, *asker, to("^two", text="two done", delay_ms=300), to("^three", text="three done"))
    async with Retinue(tmp_path, model=model, max_concurrent=1) as crew:
        with crew.questions.attend():
            heard = Heard(crew, RunAsked, RunAnswered, RunStarted, RunFinished)
            one, two, three = [await crew.spawn("Explore", word) for word in ("one", "two", "three")]
            await heard.wait(RunAsked)
            async with asyncio.timeout(10):
                while two.status is not Status.RUNNING:
                    await asyncio.sleep(0.01)
            crew.answer("q1", "80")
            assert [(await run.wait(10)).text for run in (one, two, three)] == ["one done", "two done", "three done"]
    order = [event.run_id for event in heard.events if isinstance(event, RunFinished)]
    assert order == [two.id, one.id, three.id]  # it has waited for the slot, before those that have not begun


async def test_stop_withdraws_the_question(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *CHILD)) as crew:
        with crew.questions.attend():
            heard, run = Heard(crew), await crew.spawn("Explore", "look")
            await heard.wait(RunAsked)
            await run.stop()
            outcome = await run.wait(10)
            assert (outcome.reason, heard.words, crew.list_questions()) == (Reason.USER, ["RunAsked", "withdrawn"], [])
            assert not crew.answer("q1", "80")


async def test_wait_for_result_ends_at_question(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *CHILD)) as crew:
        delegation = await crew.open_delegation()

        async def use(name, **arguments):
            return (await delegation.call("c1", name, arguments, lambda text: None)).content[0].text

        started = await use("Agent", subagent_type="Explore", prompt="look", description="d")
        run_id = started.split("Agent ID: ")[1].split()[0]
        async with asyncio.timeout(10):
            text = await use("get_subagent_result", agent_id=run_id, wait=True)
        assert f"<task-id>{run_id}</task-id><question>Which &lt;port&gt;?" in text and "answer_subagent" in text
        assert f"{run_id} | Explore | running (waits for an answer to q1) | d" in await use("list_subagents")
        assert (await use("answer_subagent", id=run_id, text="80")).startswith("Answered.")
        assert "found" in await use("get_subagent_result", agent_id=run_id, wait=True)


NESTED = """---
name: lead
description: d
tools: read, ask_parent, Agent, answer_subagent
---
Work.
"""


async def test_nested_child_asks_its_own_parent(tmp_path):
    (tmp_path / ".pi" / "agents").mkdir(parents=True)
    (tmp_path / ".pi" / "agents" / "lead.md").write_text(NESTED)
    lead = [to("^lead", calls=[LOOK]), to("^lead", text="waiting"), to("task-question", calls=[ANSWER])]
    replies = [*lead, *CHILD, to("task-question", text="answered"), to("task-notification", text="lead done")]
    async with Retinue(tmp_path, model=script(tmp_path, *replies), request=APPROVED) as crew:
        run = await crew.spawn("lead", "lead")
        assert (await run.wait(10)).text == "lead done"
        (child,) = [each for each in crew.session_runs.runs if each.parent_id == run.id]
        assert (results(crew, child.id), told(crew)) == (["8080"], [])


@pytest.mark.parametrize("is_attended", [True, False])
async def test_only_the_user_answers_blocked_caller(tmp_path, is_attended):
    (tmp_path / ".pi" / "agents").mkdir(parents=True)
    asker = "---\nname: asker\ndescription: d\nreadonly: true\ntools: read, ask_parent\n---\nWork.\n"
    (tmp_path / ".pi" / "agents" / "asker.md").write_text(asker)
    begin = [to("^begin", calls=[call("subagent", agent="asker", task="look")]), to("^begin", text="done")]
    model = script(tmp_path, *begin, to("look", calls=[ASK]), to("look", text="found"))
    async with Retinue(tmp_path, model=model, request=APPROVED, surfaces=["subagent"]) as crew:
        heard = Heard(crew)
        with crew.questions.attend() if is_attended else nullcontext():
            async with asyncio.TaskGroup() as group:
                prompt = group.create_task(crew.prompt("begin"))
                if is_attended:
                    await heard.wait(RunAsked)
                    assert crew.answer("q1", "80")
        (run,) = await crew.runs()
        expected = (["80"], ["RunAsked", "user"]) if is_attended else ([NO_ANSWER], [])
        assert (results(crew, run.id), heard.words) == expected
        assert (prompt.result().text, told(crew)) == ("done", [])
