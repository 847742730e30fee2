"""A fork begins with the bytes of its parent's request, so that the provider reads them from its cache."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue import Request, Retinue, SessionWish
from retinue.core.events import Warned
from retinue.testing import EventCollector, MockServer
from retinue.views.export.page import render_export
from retinue.views.report import read_report
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
    server = serve(api, *replies, cost={"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75})
    async with open_crew(tmp_path, max_concurrent=32) as crew:
        await crew.prompt("read " + NOTES)
        used = [(await run.wait()).usage for run in await crew.runs()]
        session = crew.session_file
    assert len(used) == 32
    story = read_report(session)
    # What was copied into the sessions of the forks is not counted again.
    assert [chapter.usage for chapter in story.runs] == list(reversed(used))
    page = render_export(session)
    told = re.findall(r"[\d.]+k cached, [\d.]+k? uncached input, the cache saved \$0\.\d+", page)
    assert len(told) == 32, told
    assert all(each.cache_read + each.input + each.cache_write > 60_000 for each in used)
    assert min(each.cache_read / (each.cache_read + each.input + each.cache_write) for each in used) >= 0.98
    parent, *children = [bodies(server)[1], *(body for body in bodies(server) if b"<active_agent " in body)]
    assert [is_prefix(parent, child) for child in children] == [True] * 32


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


FIELDS = {
    "tools": st.sampled_from(["none", "read", "read, bash", "all", "Agent, read, ls", "bash, edit, read"]),
    "disallowed_tools": st.sampled_from(["bash", "read, ls", "write"]),
    "readonly": st.booleans(),
    "thinking": st.sampled_from(["off", "low", "high"]),
    "max_turns": st.integers(1, 9),
    "max_cost": st.floats(1, 50),
    "max_tokens_total": st.integers(10**6, 10**9),
    "prompt_mode": st.sampled_from(["append", "replace"]),
    "isolated": st.booleans(),
    "skills": st.booleans(),
    "memory": st.sampled_from(["project", "local"]),
    "runner": st.sampled_from(["inprocess", "durable"]),
}


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({}, optional=FIELDS), st.text(max_size=40).filter(str.isprintable))
async def test_bytes_of_the_parent_are_a_prefix(api, tmp_path, serve, write_agent, fields, words):
    """Whatever rights, tools and agents differ."""
    fields = {name: str(value).lower() for name, value in fields.items()}
    write_agent("child", body=f"Instructions {words}", **fields)
    server = serve(
        api,
        to("^go", text=words, calls=[call("ls", path=".")]),
        to("^go", calls=[fork(f"count {words}", subagent_type="child")]),
        to("^count", text="counted"),
        to("", text="thanks"),
        reasoning=True,
    )
    async with open_crew(tmp_path, default_thinking_level="medium") as crew:
        await crew.prompt(f"go {words}")
        (run,) = await crew.runs()
        assert (await run.wait()).text == "counted"
    (child,) = [body for body in bodies(server) if b"<active_agent " in body]
    assert is_prefix(bodies(server)[1], child)


@pytest.mark.parametrize("api", APIS)
async def test_fork_of_a_fork_has_its_bytes_too(api, tmp_path, serve, write_agent):
    write_agent("one", body="First.", tools="Agent, ls")
    write_agent("two", body="Second.", tools="Agent, ls")
    write_agent("three", body="Third.", tools="ls")
    server = serve(
        api,
        to("^go", calls=[fork("a task", subagent_type="one")]),
        to("^a task", calls=[call("ls", path=".")]),
        to("^a task", calls=[fork("b task", subagent_type="two")]),
        to("^b task", calls=[fork("c task", subagent_type="three")]),
        to("^c task", calls=[call("ls", path=".")]),
        to("^c task", text="three done"),
        to("", text="thanks"),
    )
    async with open_crew(tmp_path) as crew:
        await crew.prompt("go")
        for run in await crew.runs():
            assert (await run.wait()).status == "completed"
    main = bodies(server)[0]
    one = [body for body in bodies(server) if b"First." in body and b"Second." not in body]
    (two,) = [body for body in bodies(server) if b"Second." in body and b"Third." not in body][:1]
    three = [body for body in bodies(server) if b"Third." in body]
    assert is_prefix(main, one[0]) and is_prefix(one[1], two) and is_prefix(two, three[0])
    assert {request.json["max_tokens"] > 0 for request in server.requests if "max_tokens" in request.json} <= {True}


async def test_resumed_fork_sends_the_same_bytes(tmp_path, serve):
    request = Request(approve=True, session=SessionWish("exact", "forked"))
    replies = [
        to("^go", calls=[fork("count")]),
        to("^count", text="counted"),
        to("^again", text="again counted"),
        to("", text="thanks"),
    ]
    server = serve("anthropic-messages", *replies)
    async with Retinue(tmp_path, model="mock/mock-1", request=request) as crew:
        await crew.prompt("go")
        (run,) = await crew.runs()
        await run.wait()
    async with Retinue(tmp_path, model="mock/mock-1", request=request) as crew:
        outcome = await (await crew.resume(run.id, "again")).wait()
    assert outcome.text == "again counted"
    (first, second) = [body for body in bodies(server) if b"<active_agent " in body]
    assert is_prefix(bodies(server)[0], first) and is_prefix(bodies(server)[0], second)
    assert second.count(b"<active_agent ") == 1


async def test_fork_with_another_model_gets_a_summary(tmp_path, serve, agent_dir):
    server = serve(
        "openai-responses",
        to("^go", calls=[fork("count", model="mock/other")]),
        to("count", text="counted"),
        to("", text="thanks"),
    )
    known = json.loads((agent_dir / "models.json").read_text())
    known["providers"]["mock"]["models"].append({"id": "other", "contextWindow": 100_000})
    (agent_dir / "models.json").write_text(json.dumps(known))
    async with open_crew(tmp_path) as crew:
        await crew.prompt("go for it")
        (run,) = await crew.runs()
        await run.wait()
    (child,) = [request.json for request in server.requests if request.json["model"] == "other"]
    assert "# Parent Conversation Context" in child["input"][0]["content"][0]["text"]
    assert any(b"a fork needs your model, mock/mock-1" in body for body in bodies(server))
    keys = {request.json["prompt_cache_key"] for request in server.requests}
    assert len(keys) == 1


async def test_python_forks_an_idle_conversation(tmp_path, serve):
    server = serve("anthropic-messages", to("^go", text="It is all said."), to("^count", text="counted"))
    seen = EventCollector()
    async with open_crew(tmp_path) as crew:
        crew.listen(seen)
        early = await crew.spawn("general-purpose", "count early", context="fork")
        await early.wait()
        await crew.prompt("go")
        run = await crew.spawn("general-purpose", "count", context="fork")
        await run.wait()
    warned = [event.text for event in seen.events if isinstance(event, Warned)]
    assert any("context fork: there is no conversation yet" in text for text in warned)
    (parent,) = [body for body in bodies(server) if b"<active_agent " not in body]
    child = bodies(server)[-1]
    assert is_prefix(parent, child) and b"It is all said." in child


async def test_process_continues_the_request(tmp_path, serve, write_agent):
    write_agent("apart", runner="process", tools="read")
    server = serve(
        "anthropic-messages",
        to("^go", calls=[fork("count", subagent_type="apart")]),
        to("^count", calls=[call("bash", command="touch forbidden")]),
        to("^count", text="counted"),
        to("", text="thanks"),
    )
    async with open_crew(tmp_path) as crew:
        await crew.prompt("go")
        (run,) = await crew.runs()
        outcome = await run.wait(60)
    assert outcome.text == "counted"
    first, second = [body for body in bodies(server) if b"<active_agent " in body]
    assert is_prefix(bodies(server)[0], first)
    assert b"bash was not run: this agent may not use it." in second
