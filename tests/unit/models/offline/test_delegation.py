from html import escape

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import CustomMessage, TextContent, ToolResultMessage, UserMessage
from retinue.core.model import Draft, ModelRequest, ToolSpec
from retinue.models.offline import INFO, OfflineModel
from retinue.models.offline.answer import NOTE
from retinue.models.offline.delegation import RunNotice, parse_notices

TOOLS = [
    ToolSpec("Agent", "Types:\n- Explore: searches", {"properties": {"prompt": {}}}),
    ToolSpec("get_subagent_result", "", {"properties": {"agent_id": {}}}),
    ToolSpec("grep", "", {"properties": {"pattern": {}}}),
]
QUESTION = "Where is the shelf, and what happens when a save fails?"
TAG = '<active_agent name="Explore" agent_id="c" depth="1"/>'
SHELF = "- `shelf.py:8` class `Shelf`\n  ```\n  8  class Shelf:\n  ```\n"
ONE = f"""It is `Shelf`, a class in `shelf.py:8`.

{SHELF}
---
Confidence: strong. Based on 4 searches, 1 reads (read `shelf.py`).
{NOTE}"""
TWO = f"""Most likely `save`, in `store.py:3`.

{SHELF}
---
Confidence: weak. Based on 3 searches. Not found: “fails”.
{NOTE}"""


async def reply(messages, tools=TOOLS, system=""):
    draft = Draft(INFO, started_ms=7)
    return (await OfflineModel().reply(ModelRequest(system, messages, tools), draft)).message


def result(call, text, is_error=False):
    return ToolResultMessage(call.id, call.name, [TextContent(text)], is_error, 0)


def started(message):
    calls = enumerate(message.calls, 1)
    return [
        result(call, f"Agent started in background.\nAgent ID: run{number}\nType: Explore") for number, call in calls
    ]


def notify(*runs, status="Done", text="It is `Shelf`"):
    blocks = [
        f"<task-notification>\n<task-id>{run}</task-id>\n<status>{escape(status)}</status>\n"
        f'<summary>Agent "look" ended</summary>\n<result>{escape(text)}</result>\n</task-notification>'
        for run in runs
    ]
    return CustomMessage("subagent-notification", "\n\n".join(["head", *blocks]), display=True, timestamp=0)


def report(call, text, status="completed"):
    head = f"Agent: {call.arguments['agent_id']}\nType: Explore | Status: {status} | Tool uses: 5\nDescription: look"
    return result(call, f"{head}\n\n{text}")


async def ask(question=QUESTION):
    """A conversation in which two agents are at work."""
    messages = [UserMessage(question, 0)]
    first = await reply(messages)
    messages += [first, *started(first)]
    messages.append(await reply(messages))
    return messages


async def read(messages, *texts, status="completed"):
    """What is said when the reports are fetched."""
    fetch = await reply(messages)
    messages += [fetch, *(report(call, text, status) for call, text in zip(fetch.calls, texts, strict=True))]
    messages.append(await reply(messages))
    return messages[-1]


async def test_parts_go_to_agents():
    message = await reply([UserMessage(QUESTION, 0)])

    assert [call.arguments for call in message.calls] == [
        {
            "subagent_type": "Explore",
            "description": "Find shelf in code",
            "prompt": "Where is the shelf?",
            "model": "offline/rules",
        },
        {
            "subagent_type": "Explore",
            "description": "Trace save fails shelf",
            "prompt": "What happens when a save fails? (This is about shelf.)",
            "model": "offline/rules",
        },
    ]


async def test_turn_ends_while_they_work():
    messages = await ask()

    assert (messages[-1].stop_reason, messages[-1].text) == (
        "stop",
        "2 `Explore` agents are working on: Where is the shelf? What happens when a save fails?",
    )


async def test_first_report_waits_for_the_second():
    messages = [*await ask(), notify("run2")]

    assert ((await reply(messages)).text, (await reply(messages)).calls) == ("1 of 2 reports are in.", [])


async def test_all_reports_are_fetched_at_once():
    messages = [*await ask(), notify("run2", "run1")]

    message = await reply(messages)

    assert [(call.name, call.arguments) for call in message.calls] == [
        ("get_subagent_result", {"agent_id": "run1"}),
        ("get_subagent_result", {"agent_id": "run2"}),
    ]


async def test_reports_that_came_alone_are_merged():
    messages = [*await ask(), notify("run1")]
    messages += [await reply(messages), notify("run2")]

    message = await read(messages, ONE, TWO)

    assert message.text.startswith("### Where is the shelf? (strong)\nIt is `Shelf`, a class in `shelf.py:8`.")
    assert "### What happens when a save fails? (weak)\nMost likely `save`, in `store.py:3`." in message.text


async def test_each_report_keeps_what_it_searched():
    messages = [*await ask(), notify("run1", "run2")]

    text = (await read(messages, ONE, TWO)).text

    assert "\nBased on 4 searches, 1 reads (read `shelf.py`).\n" in text
    assert "\nBased on 3 searches. Not found: “fails”.\n" in text
    assert text.endswith(f"\n---\n2 `Explore` agents searched in parallel.\n{NOTE}")


async def test_failed_agent_is_reported():
    messages = [*await ask(), notify("run1", "run2", status="Error: no memory")]

    text = (await read(messages, ONE, "Error: no memory", status="error")).text

    assert (
        "### What happens when a save fails? (failed)\nThere is no complete report: error.\n\nError: no memory" in text
    )
    assert "Not answered: Where is the shelf?; What happens when a save fails?" in text


async def test_lost_result_leaves_its_preview():
    messages = [*await ask(), notify("run1", "run2")]
    fetch = await reply(messages)
    messages += [fetch, *(result(call, "Agent not found", is_error=True) for call in fetch.calls)]

    assert "### Where is the shelf?\nIt is `Shelf`\n" in (await reply(messages)).text


async def test_refused_agents_leave_the_work_here():
    messages = [UserMessage(QUESTION, 0)]
    first = await reply(messages)
    messages += [first, *(result(call, "Unknown agent type", is_error=True) for call in first.calls)]

    message = await reply(messages)

    assert {call.name for call in message.calls} == {"grep"}


async def test_one_refused_agent_is_reported():
    messages = [UserMessage(QUESTION, 0)]
    first = await reply(messages)
    messages += [first, started(first)[0], result(first.calls[1], "Too many agents.", is_error=True)]
    messages += [await reply(messages), notify("run1")]

    text = (await read(messages, ONE)).text

    assert "(failed)\nThere is no complete report: not started.\n\nToo many agents." in text


async def test_new_question_goes_first():
    messages = [*await ask(), UserMessage("Where is the bus?", 0)]
    look = await reply(messages)
    messages += [look, *(result(call, "No matches found") for call in look.calls), notify("run1", "run2")]
    while (message := await reply(messages)).calls[0].name == "grep":
        messages += [message, *(result(call, "No matches found") for call in message.calls)]

    text = (await read(messages, ONE, TWO)).text

    assert text.startswith("I found nothing for `bus`")
    assert "### Where is the shelf? (strong)" in text


async def test_answered_round_is_not_told_again():
    messages = [*await ask(), notify("run1", "run2")]
    await read(messages, ONE, TWO)
    messages.append(UserMessage("thanks", 0))

    message = await reply(messages)

    assert (message.calls, "Shelf" in message.text) == ([], False)


async def test_report_of_a_strange_run_is_passed_on():
    messages = [UserMessage("thanks", 0)]
    messages += [await reply(messages), notify("other", text="All is <well>")]

    message = await reply(messages)

    assert message.text.startswith('Agent "look" ended: Done.\n\nAll is <well>\n')


@pytest.mark.parametrize("parts", [[QUESTION, TAG], [f"{QUESTION}\n{TAG}"]])
async def test_child_asks_nobody(parts):
    message = await reply([UserMessage([TextContent(part) for part in parts], 0)])

    assert {call.name for call in message.calls} == {"grep"}
    assert "active_agent" not in str([call.arguments for call in message.calls])


def test_notice_is_unescaped():
    assert list(parse_notices(notify("a1", text="</result> & more").content)) == [
        RunNotice("a1", "Done", 'Agent "look" ended', "</result> & more")
    ]


@given(st.text(max_size=200), st.text(max_size=200), st.booleans())
async def test_any_report_gets_an_answer(text, status, is_error):
    messages = [*await ask(), notify("run1", text=text, status=status), notify("run2")]
    fetch = await reply(messages)
    messages += [fetch, *(result(call, text, is_error) for call in fetch.calls)]

    message = await reply(messages)

    msgspec.json.encode(message)
    assert (message.calls, message.stop_reason, NOTE in message.text) == ([], "stop", True)
