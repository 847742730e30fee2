"""Servers of revision 2026-07-28: they ask in rounds, answer with tasks, and are told when a call is cancelled."""

import asyncio

import pytest
from aiohttp import web

from retinue.features.mcp.server import McpServer
from tests.flows.mcp_world import World, call, text_of
from tests.flows.test_mcp_http import TOOLS, Site

NOW = "2026-07-28T00:00:00Z"
TEXT = {"type": "string", "title": "Port"}
FORM = {"type": "object", "properties": {"port": TEXT}, "required": ["port"]}
FAILED = "MCP tool 'hi' failed: server 'site': "


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class NewSite(Site):
    """Answers without a handshake; `replies` are the results of calls and of tasks/get, in order."""

    def __init__(self, *replies, states=()):
        super().__init__()
        self.replies, self.states = list(replies), list(states)
        self.heard = []
        self.cancelled = asyncio.Event()

    async def answer(self, request):
        message = await request.json()
        method, params = message["method"], message["params"]
        self.heard.append((method, params, request.headers.get("Mcp-Name")))
        fresh = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        match method:
            case "server/discover":
                result = {**fresh, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            case "tools/list":
                result = {**fresh, "tools": TOOLS}
            case "tools/call":
                result = self.replies.pop(0)
            case "tasks/get":
                result = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            case _:
                result = {"resultType": "complete"}
        if method == "tasks/cancel":
            self.cancelled.set()
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def pick(self, method):
        return [params for heard, params, _ in self.heard if heard == method]


def say(text):
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}


def ask(form=FORM, **more):
    request = {"method": "elicitation/create", "params": {"mode": "form", "message": "Which?", "requestedSchema": form}}
    return {"resultType": "input_required", "inputRequests": {"q": request}, **more}


def task(status, **more):
    kind = "task" if status == "new" else "complete"
    status = "working" if status == "new" else status
    times = {"createdAt": NOW, "lastUpdatedAt": NOW, "ttlMs": None, "pollIntervalMs": 1}
    return {"resultType": kind, "taskId": "t1", "status": status, **times, **more}


def answering(*answers):
    """A user who gives these answers."""
    given, asked = list(answers), []

    async def user(question):
        asked.append(question)
        return given.pop(0)

    user.asked = asked
    return user


async def run(world, site, user=None):
    async with site.open():
        world.servers.append(McpServer("site", url=site.url))
        async with world.open(ask=user) as pool:
            tools = await world.list(pool)
            return text_of(await call(tools["mcp__site__hi"], world.root))


async def test_question_is_put_to_the_user(world):
    site, user = NewSite(ask(requestState="s1"), say("thanks")), answering("81")
    assert await run(world, site, user) == "thanks"
    [question] = user.asked
    assert (question.title, question.options) == ("MCP server 'site' asks: Which?\nPort", ())
    first, second = site.pick("tools/call")
    assert second["requestState"] == "s1" and "requestState" not in first
    assert second["inputResponses"]["q"] == {"action": "accept", "content": {"port": "81"}}
    meta = second["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert "elicitation" in meta and "io.modelcontextprotocol/tasks" in meta["extensions"]


@pytest.mark.parametrize("answers", [[None], [""]])
async def test_nobody_answers_for_the_user(world, answers):
    site = NewSite(ask(), say("thanks"))
    assert await run(world, site, answering(*answers)) == "thanks"
    assert site.pick("tools/call")[1]["inputResponses"]["q"] == {"action": "decline"}


@pytest.mark.attack("F3")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_rounds_are_refused_without_a_user(world, method):
    params = {"messages": [], "maxTokens": 5} if "sampling" in method else {}
    asked = ask() if "elicit" in method else ask(inputRequests={"q": {"method": method, "params": params}})
    site = NewSite(asked, say("never"))
    assert await run(world, site) == f"{FAILED}it sent the request {method!r}, which is refused"
    assert len(site.pick("tools/call")) == 1


@pytest.mark.attack("F4")
async def test_endless_rounds_end(world):
    site = NewSite(*[ask()] * 40)
    text = await run(world, site, answering(*["1"] * 40))
    assert text == f"{FAILED}it asked for more than 20 rounds of input"


async def test_task_is_polled_to_its_result(world):
    request = ask()["inputRequests"]
    states = [
        task("working"),
        *[task("input_required", inputRequests=request)] * 2,
        task("completed", result=say("ok")),
    ]
    site, user = NewSite(task("new"), states=states), answering("81")
    assert await run(world, site, user) == "ok"
    [update] = site.pick("tasks/update")
    assert update["inputResponses"] == {"q": {"action": "accept", "content": {"port": "81"}}}
    assert {name for method, _, name in site.heard if method.startswith("tasks/")} == {"t1"}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (task("failed", error={"code": -32603, "message": "no \x1b[31mluck"}), "no [31mluck"),
        (task("cancelled"), "its task was cancelled"),
        (task("completed"), "its answer does not follow the protocol"),
        ({"resultType": "complete"}, "its answer does not follow the protocol"),
    ],
)
async def test_task_without_result_is_a_failure(world, state, reason):
    assert await run(world, NewSite(task("new"), states=[state])) == f"{FAILED}{reason}"


async def test_cancelled_call_cancels_its_task(world):
    site = NewSite(task("new"), states=[task("working")])
    running = asyncio.create_task(run(world, site))
    while not site.pick("tasks/get"):
        await asyncio.sleep(0.01)
    running.cancel()
    async with asyncio.timeout(5):
        await site.cancelled.wait()
    await asyncio.wait((running,))
    assert running.cancelled()
