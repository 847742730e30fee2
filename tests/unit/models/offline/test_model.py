import msgspec
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import AssistantMessage, TextContent, ToolResultMessage, UserMessage
from retinue.core.model import Draft, ModelRequest, ToolSpec
from retinue.models.offline import INFO, OfflineModel

TOOLS = [
    ToolSpec(name, "", {"type": "object", "properties": {field: {"type": "string"}}})
    for name, field in (("grep", "pattern"), ("find", "pattern"), ("read", "path"), ("ls", "path"))
]
WRAP_UP = "You have reached your turn limit. Do not call any more tools: give your final answer now."


async def reply(messages, tools=TOOLS, watcher=None):
    draft = Draft(INFO, started_ms=7, watcher=watcher)
    return (await OfflineModel().reply(ModelRequest("", messages, tools), draft)).message


def answer_calls(message, text, is_error=False):
    return [ToolResultMessage(call.id, call.name, [TextContent(text)], is_error, 0) for call in message.calls]


async def play(messages, text, tools=TOOLS):
    while True:
        message = await reply(messages, tools)
        messages.append(message)
        if not message.calls:
            return message
        messages.extend(answer_calls(message, text))


async def test_same_request_same_reply():
    messages = [UserMessage("Where is the inbox?", 0)]

    assert await reply(messages) == await reply(messages)


async def test_calls_come_with_stop_reason_and_numbers():
    message = await reply([UserMessage("Where is the inbox?", 0)])

    assert message.stop_reason == "toolUse"
    assert [call.id for call in message.calls] == [f"rules_{number + 1}" for number in range(len(message.calls))]


async def test_tools_are_known_under_other_names():
    names = {"grep": "search_code", "find": "search_files", "read": "read_file", "ls": "list_dir"}
    renamed = [msgspec.structs.replace(tool, name=names[tool.name], alias_of=tool.name) for tool in TOOLS]
    asked: list[list[object]] = [[UserMessage("Where is the inbox?", 0)], [UserMessage("Where is the inbox?", 0)]]
    found = "src/inbox.py:3: class Inbox:"
    plain, other = await play(asked[0], found), await play(asked[1], found, renamed)
    called = [[call.name for each in talk for call in getattr(each, "calls", ())] for talk in asked]
    assert called[1] == [names[name] for name in called[0]] != []
    assert other.text == plain.text


async def test_numbers_go_on_over_questions():
    messages = [UserMessage("Where is the inbox?", 0)]
    await play(messages, "No matches found")

    message = await reply([*messages, UserMessage("Where is the bus?", 0)])

    used = {call.id for each in messages if isinstance(each, AssistantMessage) for call in each.calls}
    assert used and not used & {call.id for call in message.calls}


async def test_nothing_found_names_what_was_sought():
    message = await play([UserMessage("Where is the flux capacitor?", 0)], "No matches found")

    assert message.text.startswith("I found nothing for “flux”, “capacitor”.")
    assert "Confidence: none" in message.text


async def test_failed_tools_are_mentioned():
    messages = [UserMessage("Where is the inbox?", 0)]
    first = await reply(messages)
    messages += [first, *answer_calls(first, "ripgrep is not there", is_error=True)]

    message = await play(messages, "No matches found")

    assert "Failed: find: ripgrep is not there" in message.text


async def test_wrap_up_ends_the_work():
    messages = [UserMessage("Where is the inbox?", 0)]
    first = await reply(messages)
    messages += [first, *answer_calls(first, "box.py:3: class Inbox:"), UserMessage(WRAP_UP, 0)]

    message = await reply(messages)

    assert (message.stop_reason, message.calls) == ("stop", [])
    assert "`box.py:3`" in message.text


async def test_no_tools_is_said():
    message = await reply([UserMessage("Where is the inbox?", 0)], tools=[])

    assert message.text.startswith("I cannot answer this without the tools `grep`, `find`, `read` and `ls`")


async def test_work_is_bounded():
    messages = [UserMessage("How does the `Alpha_beta` cookie session parser write retry files?", 0)]
    await play(
        messages, "\n".join(f"src/cookie{n}.py:{n}: def parse_cookie_session_{n}(retry):" for n in range(1, 200))
    )

    replies = [each for each in messages if isinstance(each, AssistantMessage)]
    assert len(replies) <= 6
    assert sum(len(each.calls) for each in replies) <= 22
    assert len(replies[-1].text.splitlines()) <= 60


async def test_pieces_add_up_when_watched():
    deltas = []

    message = await reply([UserMessage("thanks", 0)], watcher=deltas.append)

    pieces = [delta.delta for delta in deltas if delta.type == "text_delta"]
    assert (len(pieces) > 5, "".join(pieces)) == (True, message.text)


async def test_usage_is_estimated_and_free():
    message = await reply([UserMessage("thanks" + " " * 22, 0)])

    assert message.usage.input == 7
    assert (message.usage.output, message.usage.cost.total) == (len(message.text) // 4, 0)


async def test_a_conversation_is_summarised():
    text = "<conversation>\n[User]: Where is the bus?\n\n[Assistant]: In bus.py.\n</conversation>\nSummarize it."

    message = await reply([UserMessage(text, 0)], tools=[])

    assert "- Where is the bus?" in message.text
    assert "In bus.py." in message.text


@given(st.text(max_size=200), st.text(max_size=400), st.booleans())
async def test_any_text_gets_an_answer(question, result, is_error):
    messages = [UserMessage(question, 0)]
    for _ in range(7):
        message = await reply(messages)
        msgspec.json.encode(message)
        messages += [message, *answer_calls(message, result, is_error)]
        if not message.calls:
            break

    assert message.stop_reason == "stop" and message.text
