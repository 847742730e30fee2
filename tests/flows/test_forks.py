"""A fork begins with the bytes of its parent's request, so that the provider reads them from its cache."""

import json

import pytest

from retinue import Request, Retinue
from retinue.testing import MockServer
from tests.flows.crew_world import call, to

CACHING = ("anthropic-messages", "google-generative-ai", "openai-responses")
APIS = (*CACHING, "openai-completions")
NOTES = "".join(f"Line {number}: a note about the project that everyone should know.\n" for number in range(4000))


@pytest.fixture
def write_agent(tmp_path):
    def write(name, body="Count the words.", **fields):
        folder = tmp_path / ".pi" / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{key}: {value}\n" for key, value in fields.items())
        (folder / f"{name}.md").write_text(f"---\ndescription: {name}\n{lines}---\n{body}\n")

    return write


def fork(prompt="count", **arguments):
    return call("Agent", prompt=prompt, description="d", context="fork", **arguments)


@pytest.fixture
def serve(agent_dir):
    """Start a provider with a prompt cache and make it the only one."""
    servers = []

    def start(api, *replies, **model):
        manager = MockServer.in_thread(list(replies), caches=True)
        server = manager.__enter__()
        servers.append(manager)
        known = server.models_json(api=api, **{"contextWindow": 200_000, **model})
        (agent_dir / "models.json").write_text(json.dumps(known))
        return server

    yield start
    for manager in servers:
        manager.__exit__(None, None, None)


def open_crew(folder, **options):
    return Retinue(folder, model="mock/mock-1", request=Request(approve=True), **options)


def is_prefix(first, second):
    return second.startswith(first[: first.rindex(b"]")])


def bodies(server):
    return [request.body for request in server.requests]


@pytest.mark.parametrize("api", CACHING)
async def test_forks_are_read_from_the_cache(api, tmp_path, serve):
    (tmp_path / "notes.txt").write_text(NOTES)
    replies = [
        to("^read", calls=[call("read", path="notes.txt", limit=4000)]),
        to("^read", calls=[fork(f"count {number}") for number in range(32)]),
        to("^count", text="done"),
        to("", text="all done"),
    ]
    server = serve(api, *replies)
    async with open_crew(tmp_path, max_concurrent=32) as crew:
        await crew.prompt("read " + NOTES)
        used = [(await run.wait()).usage for run in await crew.runs()]
    assert len(used) == 32
    assert all(each.cache_read + each.input + each.cache_write > 60_000 for each in used)
    assert min(each.cache_read / (each.cache_read + each.input + each.cache_write) for each in used) >= 0.98
    parent, *children = bodies(server)[1:34]
    assert all(is_prefix(parent, child) for child in children)


@pytest.mark.parametrize("api", APIS)
async def test_fork_begins_with_the_bytes_of_its_parent(api, tmp_path, serve, write_agent):
    write_agent("reader", tools="read", thinking="high", max_turns=3)
    server = serve(
        api,
        to("^go", calls=[call("ls", path=".")]),
        to("^go", text="I ask someone.", calls=[fork(subagent_type="reader")]),
        to("^go", text="waiting"),
        to("^count", calls=[call("bash", command="touch forbidden"), call("read", path="x")]),
        to("^count", text="counted"),
        to("", text="thanks"),
        reasoning=True,
    )
    async with open_crew(tmp_path, default_thinking_level="medium") as crew:
        await crew.prompt("go")
        (run,) = await crew.runs()
        outcome = await run.wait()
    assert (outcome.status, outcome.text) == ("completed", "counted")
    parent = bodies(server)[1]
    first, second = [body for body in bodies(server) if b"Count the words." in body]
    assert is_prefix(parent, first)
    assert not (tmp_path / "forbidden").exists()
    assert b"bash was not run: this agent may not use it." in second
    assert b"I ask someone." not in first
    own = first[len(parent) - 2 :]
    assert own.index(b"Count the words.") < own.index(b"count") < own.index(b"<active_agent ")
