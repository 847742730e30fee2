"""What `why` and `agents` say of an agent is what its next run has, on every surface and whatever is switched."""

import json

import pytest

from retinue.app import Request
from retinue.views.overview import open_roster

AGENTS = {
    ".pi/agent/agents/writer.md": "name: writer\ntools: read, edit, bash, lsp, web_search, convert_content, todo_write",
    ".pi/agent/agents/plain.md": "name: plain",
    ".pi/agent/agents/reader.md": "name: reader\nreadonly: true\ntools: read, bash, write, grep",
    ".pi/agent/agents/boss.md": "name: boss\ntools: read, Agent, subagent, dispatch_agent, list_models",
    ".pi/agent/agents/Twin.md": "name: Twin\ntools: read, edit",
    ".pi/agent/agents/twin.md": "name: twin\ntools: read, grep",
    ".codingcode/agents/coder.md": "name: coder\ntools: [read_file, edit_file, execute_command]",
    ".pi/agent/subagents/keeper.md": "name: keeper\napproved_tools: [read, write, bash]",
    ".pi/agent/subagents/heir.md": "name: heir",
}
NAMES = ("writer", "plain", "reader", "boss", "Twin", "twin", "coder", "keeper", "heir", "Explore", "explore", "PLAN")
TOOLS = (
    *("read", "bash", "edit", "write", "grep", "find", "ls", "lsp", "web_search", "fetch_content", "convert_content"),
    *("todo_write", "Agent", "subagent", "dispatch_agent", "list_models", "read_file", "execute_command", "edit_file"),
)
SETTINGS = {
    "as it is": {},
    "allowWrite": {"subagents": {"allowWrite": True}},
    "denials": {"subagents": {"readonlyBash": True}, "denyTools": ["edit", "Grep", "todo_write"]},
    "no web": {"web": {"enabled": False}, "convertContent": {"enabled": False}, "subagents": {"allowLspTools": False}},
    "no sandbox": {"sandbox": {"mode": "off"}, "subagents": {"allowWrite": True}, "lsp": {"enabled": False}},
    "no foreground": {"subagents": {"enabled": False}, "config": "subagent:\n  enabled: false\n"},
    "all off": {"enabled": False},
    "few tools": {"main": {"defaultTools": ["read", "bash"]}, "disableDefaultAgents": True},
    "switches broken": {"config": "subagent:\n  disabledAgents: {writer: true\n"},
    "agents off": {"config": "subagent:\n  disabledAgents: {writer: true, Explore: true}\n"},
}
CALLS = {
    "fleet": lambda name: ("Agent", {"subagent_type": name, "prompt": "look", "description": "d"}),
    "subagent": lambda name: ("subagent", {"agent": name, "task": "look"}),
    "dispatch": lambda name: ("dispatch_agent", {"agent": name, "prompt": "look"}),
}


@pytest.fixture
def world(place):
    for path, fields in AGENTS.items():
        (place.home / path).parent.mkdir(parents=True, exist_ok=True)
        (place.home / path).write_text(f"---\n{fields}\ndescription: d\n---\n\nWork.\n")
    log = place.root / "requests"
    hook = {"name": "log", "point": "llm.request.before", "type": "observer", "command": "sh"}
    hook |= {"args": ["-c", f"cat >> {log}"]}
    (place.home / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": [hook]}))
    place.log = log
    return place


def configure(place, settings):
    own = {key: value for key, value in settings.items() if key not in ("main", "config")}
    own["surfaces"] = ["fleet", "subagent", "dispatch"]
    (place.agent_dir / "subagents.json").write_text(json.dumps(own))
    (place.agent_dir / "settings.json").write_text(json.dumps(settings.get("main", {})))
    (place.home / ".codingcode" / "config.yaml").write_text(settings.get("config", ""))


def offer(place, surface):
    """What the models of real runs were offered, by the name of the agent that was run."""
    calls = [CALLS[surface](name) for name in NAMES]
    replies = [
        {"match": {"last_user": "^begin"}, "calls": [{"name": tool, "arguments": words} for tool, words in calls]},
        {"match": {"last_user": "^"}, "text": "done"},
    ]
    done = place.run("-p", "begin", replies=replies, timeout_s=60)
    assert done.status == 0, done.stderr
    seen = [json.loads(line) for line in place.log.read_text().splitlines()]
    return {item["agent"]: set(item["tools"]) - {"subagent_finalize", "tool_search"} for item in seen if item["agent"]}


def foretell(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    monkeypatch.chdir(place.work)
    roster = open_roster(Request(), lambda text: None)

    return roster, {definition.name: definition.tools.aliases for definition in roster.read().definitions}


@pytest.mark.sample(11)
@pytest.mark.attack("I14")
@pytest.mark.parametrize("surface", CALLS)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_forecast_is_what_the_run_has(world, monkeypatch, settings, surface):
    configure(world, settings)
    offered = offer(world, surface)
    roster, aliases = foretell(world, monkeypatch)
    meant = set()
    for name in NAMES:
        chains = [next(chain for on, chain in roster.explain(name, tool) if surface in on) for tool in TOOLS]
        (agent,) = {chain.agent for chain in chains}
        given = offered.get(agent, set())
        own = {aliases[agent].get(tool, tool) for tool in given} if agent in aliases else set()
        assert {chain.tool for chain in chains if chain.is_granted} == {*given, *own} & set(TOOLS), (name, agent)
        meant.add(agent)
    assert set(offered) <= meant
    listed = roster.list_rows()["toolsBySurface"][surface]
    assert {name: set(listed[name]) for name in meant & set(listed)} == {
        name: offered.get(name, set()) for name in meant & set(listed)
    }


@pytest.mark.sample(5)
@pytest.mark.attack("I14")
@pytest.mark.parametrize(
    ("settings", "agent", "tool", "surface", "said"),
    [
        ({}, "writer", "edit", "subagent", "subagents.allowWrite is off by default; set it in {home}/.pi/agent/"),
        ({"subagents": {"allowWrite": False}}, "writer", "edit", "subagent", "subagents.allowWrite is false in {own}"),
        ({}, "reader", "bash", "subagent", "subagents.readonlyBash is off by default"),
        ({"denyTools": ["edit"]}, "writer", "edit", "fleet", 'denyTools is ["edit"] in {own}'),
        ({"web": {"enabled": False}}, "writer", "web_search", "fleet", "web.enabled is false in {own}"),
        (
            {"subagents": {"allowLspTools": False}},
            "writer",
            "lsp",
            "fleet",
            "subagents.allowLspTools is false in {own}",
        ),
        ({"lsp": {"enabled": False}}, "writer", "lsp", "dispatch", "lsp.enabled is false in {own}"),
        ({"sandbox": {"mode": "off"}}, "reader", "bash", "fleet", "sandbox.mode is off in the user's settings"),
        ({"subagents": {"enabled": False}}, "plain", "read", "subagent", "subagents.enabled is false in {own}"),
        (
            {"main": {"defaultTools": ["read"]}},
            "writer",
            "edit",
            "fleet",
            'defaultTools is ["read"] in {home}/.pi/agent/settings.json',
        ),
        (
            {"config": "subagent: {disabledAgents: {plain: true}}"},
            "plain",
            "read",
            "fleet",
            "subagent.disabledAgents.plain is true in {home}/.codingcode/config.yaml",
        ),
        (
            {"config": "subagent: {enabled: false}"},
            "plain",
            "read",
            "dispatch",
            "subagent.enabled is false in {home}/.codingcode/config.yaml",
        ),
        (
            {"config": "subagent: [\n"},
            "writer",
            "read",
            "fleet",
            "config.yaml:2: not valid YAML: did not find expected node content; since it may disable",
        ),
    ],
)
def test_switch_that_takes_a_tool_is_named(world, settings, agent, tool, surface, said):
    configure(world, settings)
    answer = json.loads(world.run("why", agent, tool, "--json").stdout)
    (found,) = [item for item in answer["answers"] if surface in item["surfaces"]]
    (link,) = [link for link in found["chain"] if not link["holds"]][:1]
    own = world.agent_dir / "subagents.json"
    assert (found["granted"], said.format(home=world.home, own=own) in link["reason"]) == (False, True), link
    shown = world.run("agents", "show", agent).stdout
    assert said.format(home=world.home, own=own)[:60] in shown or agent == "plain" or tool == "edit", shown


@pytest.mark.sample(3)
@pytest.mark.attack("I14")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("explore", {"fleet": "Explore", "subagent": "Explore", "dispatch": "explore"}),
        ("Explore", {"fleet": "Explore", "subagent": "Explore", "dispatch": "Explore"}),
        ("EXPLORE", {"fleet": "Explore", "subagent": "Explore", "dispatch": "explore"}),
        ("twin", dict.fromkeys(("fleet", "subagent", "dispatch"), "twin")),
        ("Twin", dict.fromkeys(("fleet", "subagent", "dispatch"), "Twin")),
    ],
)
def test_answer_is_about_the_agent_that_would_run(world, name, meant):
    answer = json.loads(world.run("why", name, "read", "--json").stdout)
    assert {surface: item["agent"] for item in answer["answers"] for surface in item["surfaces"]} == meant
    shown = json.loads(world.run("agents", "show", name, "--json").stdout)
    assert {item["surface"]: item["agent"] for item in shown["surfaces"]} == meant
    assert shown["name"] == (name if name != "EXPLORE" else "Explore")


@pytest.mark.attack("I14")
def test_portrait_says_which_surface_is_meant(world):
    shown = world.run("agents", "show", "explore").stdout
    assert shown.startswith("explore  (builtin, codingcode)")
    assert "on fleet, subagent (retinue run) this name means Explore  (" in shown
    assert "tools on dispatch, as a child of the main agent\n  + read_file (is read)" in shown
