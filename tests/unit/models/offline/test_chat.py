import pytest

from retinue.core.messages import TextContent, ToolResultMessage, UserMessage
from tests.unit.models.offline.test_model import TOOLS, reply

FILES = {"ls": "README.md\nlarder/", "find": "README.md\nlarder/store.py\ntests/test_store.py"}
LINES = "larder/store.py:3: class Larder:\ntests/test_store.py:1: def test_larder():"


async def ask(text, files=FILES, lines=LINES, tools=TOOLS):
    messages = [UserMessage(text, 0)]
    while (message := await reply(messages, tools)).calls:
        given = {**files, "grep": lines}
        texts = [(call, [TextContent(given[call.name])]) for call in message.calls]
        results = [ToolResultMessage(call.id, call.name, content, False, 0) for call, content in texts]
        messages += [message, *results]
    return message.text


@pytest.mark.parametrize(
    "text", ["hello", "Hi!", "help", "what can you do?", "Who are you?", "what can you do for me?", "can you help me?"]
)
async def test_greeting_gets_examples_of_this_folder(text):
    said = await ask(text)
    assert said.startswith("I am `offline/rules`: fixed rules, no language model.")
    assert [line for line in said.splitlines() if line.startswith("- ")] == [
        "- What does this project do?",
        "- Where is `Larder` defined?",
        "- Explain `larder/store.py`",
    ]
    assert "`retinue login`" in said


async def test_examples_without_code_are_about_the_folder():
    said = await ask("hello", {"ls": "notes.md", "find": "notes.md"}, "No matches found")
    assert "- Which languages are used here?\n- What does this project do?\n- How do I run the tests?" in said


async def test_empty_folder_is_mentioned():
    said = await ask("hello", {"ls": "(empty directory)", "find": "No files found"}, "No matches found")
    assert "This folder has no files that I can search" in said


async def test_greeting_without_tools_is_answered():
    assert "- What does this project do?" in await ask("hello", tools=[])
