"""Settings of pi's settings.json that reach the program a command runs in, or the request a provider gets."""

import base64
import json

import pytest

from retinue import Request, Retinue
from retinue.core.errors import UsageError
from retinue.core.events import Warned
from retinue.core.messages import ImageContent, TextContent, ToolCall
from retinue.core.model import ModelInfo, Reply
from retinue.testing import EventCollector, MockServer
from tests.flows.crew_world import call, script, to

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
APIS = ("anthropic-messages", "google-generative-ai", "openai-completions", "openai-responses")


def put(folder, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))


@pytest.fixture
def shell(tmp_path):
    path = tmp_path / "own-shell"
    path.write_text('#!/bin/sh\necho "own shell"\nexec /bin/sh "$@"\n')
    path.chmod(0o755)
    return path


async def say_in_bash(tmp_path, **settings):
    """What a command of the model prints, and one of the user."""
    seen = EventCollector()
    replies = [to("^go", calls=[call("bash", command="echo done $WORD")]), to("", text="Done")]
    request = Request(approve=True)
    async with Retinue(tmp_path, model=script(tmp_path, *replies), request=request, **settings) as crew:
        crew.listen(seen)
        await crew.prompt("go")
        own = (await crew.shell.run("echo done $WORD")).output
    (result,) = [event.result for event in seen.events if type(event).__name__ == "ToolFinished"]
    return result.content[0].text.strip(), own.strip()


async def test_commands_run_in_the_chosen_shell(tmp_path, home, agent_dir, shell):
    shell.rename(home / "own-shell")
    put(agent_dir, shellPath="~/own-shell")
    told, own = await say_in_bash(tmp_path)
    assert (told.splitlines()[:2], own) == (["own shell", "done"], "own shell\ndone")
    assert told.endswith("own-shell, not by bash]")


async def test_missing_shell_is_named(tmp_path, agent_dir):
    put(agent_dir, shellPath="/nonexistent/shell")
    with pytest.raises(UsageError, match="shellPath: '/nonexistent/shell' is not a program"):
        await say_in_bash(tmp_path)


async def test_every_command_has_the_prefix(tmp_path, agent_dir):
    put(agent_dir, shellCommandPrefix="WORD=well")
    assert await say_in_bash(tmp_path) == ("done well", "done well")


async def test_project_chooses_no_shell(tmp_path, shell):
    put(tmp_path / ".pi", shellPath=str(shell), shellCommandPrefix="WORD=well")
    assert await say_in_bash(tmp_path) == ("done", "done")


async def ask(server, agent_dir, tmp_path, api, **model):
    (agent_dir / "models.json").write_text(
        json.dumps(
            {
                "providers": {
                    "mock": {
                        "baseUrl": server.base_url(api),
                        "api": api,
                        "apiKey": "k",
                        "models": [{"id": "gemini-2.5-pro", "reasoning": True, "input": ["text", "image"], **model}],
                    }
                }
            }
        )
    )
    async with Retinue(tmp_path, model="mock/gemini-2.5-pro", default_thinking_level="low") as crew:
        await crew.prompt("go")
        run = await crew.spawn("general-purpose", "look")
        await run.wait(5)
    return server.requests


@pytest.mark.parametrize("api", APIS)
async def test_no_image_is_sent(tmp_path, agent_dir, api):
    put(agent_dir, **{"images": {"blockImages": True}})
    (tmp_path / "a.png").write_bytes(PNG)
    replies = [to("(go|look)", calls=[call("read", path="a.png")]), to("", text="Done")]
    async with MockServer([*replies, *replies]) as server:
        requests = await ask(server, agent_dir, tmp_path, api)
    sent = "".join(json.dumps(each.json) for each in requests)
    assert len(requests) == 4
    told = "(an image was left out: the setting images.blockImages is on)"
    assert (base64.b64encode(PNG).decode()[:30] in sent, told in sent) == (False, True)


async def test_blocked_images_are_told(tmp_path, agent_dir):
    put(agent_dir, **{"images": {"blockImages": True}})
    image = ImageContent(base64.b64encode(PNG).decode(), "image/png")
    events = EventCollector()
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Done"})) as crew:
        crew.listen(events)
        await crew.prompt([TextContent("look"), image])
    told = [event.text for event in events.events if isinstance(event, Warned)]
    assert [text.partition(": ")[2] for text in told] == ["images are left out: the setting images.blockImages is on"]


async def test_own_model_gets_no_image(tmp_path, agent_dir):
    put(agent_dir, **{"images": {"blockImages": True}})
    (tmp_path / "a.png").write_bytes(PNG)
    heard = []

    class Own:
        info = ModelInfo("own", "one", "own", input=("text", "image"))

        async def reply(self, request, draft):
            heard.append(list(request.messages))
            if len(heard) == 1:
                draft.close_call(draft.open_call("1", "read"), ToolCall("1", "read", {"path": "a.png"}))
                return Reply(draft.finish("toolUse"))
            draft.add(draft.open_text(), "Done")
            return Reply(draft.finish("stop"))

    async with Retinue(tmp_path, model=Own()) as crew:
        outcome = await crew.prompt("go")
    assert (outcome.text, len(heard)) == ("Done", 2)
    assert "ImageContent" not in repr(heard)


@pytest.mark.parametrize(
    ("api", "find"),
    [
        ("anthropic-messages", lambda body: body["thinking"]["budget_tokens"]),
        ("google-generative-ai", lambda body: body["generationConfig"]["thinkingConfig"]["thinkingBudget"]),
        ("openai-completions", lambda body: body["thinking_budget"]),
    ],
)
async def test_thinking_has_the_chosen_budget(tmp_path, agent_dir, api, find):
    put(agent_dir, thinkingBudgets={"low": 3333})
    compat = {"compat": {"thinkingTokenBudgetField": "thinking_budget"}} if api.startswith("openai") else {}
    async with MockServer([to("", text="Done")] * 2) as server:
        requests = await ask(server, agent_dir, tmp_path, api, **compat)
    assert [find(each.json) for each in requests] == [3333, 3333]
