"""A tool of a server that a list names is a choice: nothing else of servers and extensions comes with it."""

import json
import re
import sys

import pytest

from tests.flows.mcp_world import PROGRAM

EXTENSION = """
def register(api):
    @api.tool(name="deploy", description="Deploys.", parameters={}, effect="read")
    def deploy(context):
        return "done"
"""
HI = "mcp__raw__hi"
GUESS = {"calls": [{"name": "nothing", "arguments": {}}]}


@pytest.fixture
def servers(place):
    """Two servers and an extension of the user; one server and one of its tools have a hyphen in their names."""
    entries = {}
    for name, tools in (("raw", ("hi", "bye")), ("far-off", ("do-it", "hi"))):
        path = place.root / f"{name}.py"
        path.write_text(PROGRAM.replace("#EXTRA#", f"TOOLS = [tool(name) for name in {tools!r}]"))
        entries[name] = {"command": sys.executable, "args": ["-I", "-S", str(path)]}
    (place.agent_dir / "extensions").mkdir(parents=True)
    (place.agent_dir / "extensions" / "ops.py").write_text(EXTENSION)
    (place.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    return place


def put_agent(place, fields, folder=".pi/agent/agents"):
    path = place.home / folder / "helper.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: helper\ndescription: d\n{fields}\n---\n\nWork.\n")


def list_offered(place, *args):
    """The names of the tools that the first answer to a wrong guess lists, and what was said beside it."""
    done = place.run("-p", "--mode", "json", *args, "begin", replies=[GUESS, {"text": "done"}, {"text": "done"}])
    assert done.status == 0, done.stderr
    (found,) = re.findall(r"Available: ([^\"\\]*)", "".join(map(json.dumps, done.lines)))[:1] or ["none"]
    return found.split(", "), done.stderr


@pytest.mark.sample(3)
@pytest.mark.attack("I12")
@pytest.mark.parametrize(
    "fields",
    [
        "tools:\n  - read\n  - raw: hi",
        "tools: [read, {raw: hi}]",
        "tools: {raw: hi}",
        "tools: 5",
        "tools: read\ndisallowedTools:\n  - raw: hi",
        "tools: read\ndisallowed_tools:\n  - raw: hi",
    ],
)
def test_unreadable_list_lets_nothing_in(servers, fields):
    put_agent(servers, fields)
    offered, _ = list_offered(servers, "--agent", "helper")
    assert [name for name in offered if name.startswith("mcp__") or name == "deploy"] == []


@pytest.mark.sample(7)
@pytest.mark.attack("I12")
@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("raw:hi", [HI]),
        (HI, [HI]),
        ("ext:mcp/raw:hi", [HI]),
        ("ext:mcp/mcp__raw__hi", [HI]),
        ("far-off:do-it", ["mcp__far-off__do-it"]),
        ("mcp__far-off__do-it", ["mcp__far-off__do-it"]),
        ("ext:mcp/far-off:do-it", ["mcp__far-off__do-it"]),
        ("mcp__far_off__do_it", ["mcp__far-off__do-it"]),
        ("ext:mcp, raw:hi", [HI]),
        ("ext:ops, raw:hi", [HI, "deploy"]),
        ("raw:gone", []),
        ("gone:hi", []),
        ("mcp__gone__hi", []),
        ("mcp__raw", []),
        ("mcp__raw__*", []),
        ("MCP__raw__hi", []),
        ("Ext:ops", []),
        ("raw/hi", []),
    ],
)
def test_named_tool_makes_an_allow_list(servers, word, given):
    put_agent(servers, f"tools: read, {word}")
    offered, told = list_offered(servers, "--agent", "helper")
    assert sorted(offered) == sorted(["read", *given])
    assert (f"{word!r} " in told) == (not given), told


def ask_child(servers):
    """What a child is told to have, when it guesses a tool."""
    start = {"name": "Agent", "arguments": {"subagent_type": "helper", "prompt": "look", "description": "d"}}
    replies = [
        {"match": {"last_user": "^begin"}, "calls": [start]},
        {"match": {"last_user": "^look"}, **GUESS},
        {"match": {"last_user": "^"}, "text": "done"},
    ]
    done = servers.run("-p", "begin", replies=replies)
    text = "".join(path.read_text() for path in (servers.work / ".pi" / "output").glob("*.jsonl"))
    assert done.status == 0, done.stderr
    return set(re.findall(r"Available: ([^\"\\]*)", text))


@pytest.mark.sample(4)
@pytest.mark.attack("I12")
@pytest.mark.parametrize(
    ("folder", "fields", "given"),
    [
        (".pi/agent/agents", "tools: [read, 'raw:hi']", ["read", HI]),
        (".pi/agent/agents", "allowed_tools: read, raw:hi", ["read", HI]),
        (".pi/agent/agents", "tools: '*, raw:hi'\ndisallowed_tools: bash, edit, write, grep, find, ls", ["read", HI]),
        (".codingcode/agents", "tools: [read_file, 'raw:hi']", ["read_file", HI]),
        (".codingcode/agents", "tools: [read_file, 'raw:hi']\nmcpServers: [raw]", ["read_file", HI]),
        (".codingcode/agents", "tools: [read_file, 'raw:gone']\nmcpServers: [raw]", ["read_file"]),
        (".pi/agent/subagents", "approved_tools: [read, 'raw:hi']", ["read", HI, "subagent_finalize"]),
        (".pi/agent/subagents", "allowed_tools: [read, mcp__raw__hi]", ["read", HI, "subagent_finalize"]),
    ],
)
def test_child_of_any_dialect_gets_no_more(servers, folder, fields, given):
    put_agent(servers, fields, folder)
    (found,) = ask_child(servers)
    assert sorted(found.split(", ")) == sorted(given)


SERVED = [HI, "mcp__far-off__do-it", "mcp__far-off__hi", "mcp__raw__bye"]
EMPTY = [
    *(("tools: none", []), ("tools: []", []), ('tools: ""', []), ("tools: none\nextensions: false", [])),
    *(("tools: none\nextensions: '*'", ["deploy", *SERVED]), ("tools: []\nextensions: true", ["deploy", *SERVED])),
    *(("tools: []\ninherit_extensions: true", ["deploy", *SERVED]), ("tools: none\nextensions: ops", ["deploy"])),
    *(("tools: none\nextensions: mcp", SERVED), ("tools: none\nextensions: [ops, mcp]", ["deploy", *SERVED])),
    *(("tools: none\nextensions: ops\nexclude_extensions: ops", []), ("tools: ext:ops", ["deploy"])),
    *(("tools: none\nexclude_extensions: mcp", []), ("tools: none\nextensions: ''", [])),
]


@pytest.mark.sample(5)
@pytest.mark.attack("I12")
@pytest.mark.parametrize(("fields", "given"), EMPTY)
def test_empty_list_lets_in_what_is_named(servers, fields, given):
    put_agent(servers, fields)
    offered, _ = list_offered(servers, "--agent", "helper")
    assert sorted(offered) == sorted(given or ["none"])


ALL = ["the tools of the extension ops", "the tools of the server raw", "the tools of the server far-off"]


@pytest.mark.sample(5)
@pytest.mark.attack("I14")
@pytest.mark.parametrize(
    ("fields", "own", "more"),
    [
        ("tools: none", [], []),
        ("tools: none\nextensions: ops", [], ALL[:1]),
        ("tools: []\nextensions: true", [], ALL),
        ("tools: read", ["read"], ALL),
        ("tools: read\nextensions: false", ["read"], []),
        ("tools: read\nisolated: true", ["read"], []),
        ("tools: read\nexclude_extensions: mcp", ["read"], ALL[:1]),
        ("tools: read, ext:ops", ["read"], ALL[:1]),
        ("tools: read, ext:ops/deploy, raw:hi", ["read"], [HI, "deploy"]),
        ("tools: read, ext:mcp/far-off:do-it", ["read"], ["mcp__far-off__do-it"]),
        ("tools: read, ext:gone/deploy", ["read"], []),
        ("tools: read\nreadonly: true", ["read"], [f"{ALL[0]} that only read"]),
    ],
)
def test_portrait_tells_of_tools_from_elsewhere(servers, fields, own, more):
    put_agent(servers, fields)
    about = json.loads(servers.run("agents", "show", "helper", "--json").stdout)
    (fleet,) = [item for item in about["surfaces"] if item["surface"] == "fleet"]
    assert ([tool["name"] for tool in fleet["allowed"]], sorted(fleet["elsewhere"])) == (own, sorted(more))
    shown = servers.run("agents", "show", "helper").stdout
    part = shown[shown.index("tools on fleet") :].partition("\n\n")[0]
    given = [line[4:] for line in part.splitlines() if line.startswith("  + ")]
    assert sorted(given) == sorted([*own, *more]) and ("\n  none" in part) == (not own + more)
    listed = servers.run("agents").stdout
    row = listed[listed.index("helper ") :].split("\n")[1]
    assert ("no tools" in row, "tools of extensions or servers" in row) == (not own + more, bool(more))
    assert json.loads(servers.run("agents", "--json").stdout)["elsewhere"].get("helper", []) == fleet["elsewhere"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("disallowed_tools: mcp__raw__hi", False),
        ("tools: read, raw:bye\ndisallowed_tools: [raw:hi, mcp__far_off__do_it, ext:mcp/far-off:hi]", False),
        ("tools: none\ndisallowed_tools: mcp__raw__hi", False),
        ("disallowed_tools: mcp__gone__hi", True),
        ("disallowed_tools: gone:hi", True),
    ],
)
def test_denied_tool_of_a_server_is_one(servers, fields, told):
    put_agent(servers, fields)
    _, warned = list_offered(servers, "--agent", "helper")
    for text in (servers.run("doctor").stdout, servers.run("agents", "show", "helper").stdout, warned):
        assert ("unknown disallowed tool" in text) is told, text


def test_vouched_tool_is_no_tool_of_the_subagent_surface(servers):
    put_agent(servers, "tools: read, raw:hi\nreadonly: true")
    path = servers.agent_dir / "mcp.json"
    entries = json.loads(path.read_text())["mcpServers"]
    entries["raw"]["readOnlyTools"] = ["hi"]
    path.write_text(json.dumps({"mcpServers": entries}))
    told = servers.run("why", "helper", HI).stdout
    assert f"on fleet, dispatch: helper has {HI}\n" in told
    reason = f"{HI} is not among the tools that read-only agents may have here, and the agent is read-only"
    assert f"on subagent (retinue run): helper does not have {HI}: {reason}\n" in told


@pytest.mark.attack("I14")
def test_search_is_told_with_what_it_finds(servers):
    put_agent(servers, "tools: [read_file, tool_search]\nreadonly: true", ".codingcode/agents")
    path = servers.agent_dir / "mcp.json"
    entries = json.loads(path.read_text())["mcpServers"]
    entries["raw"] |= {"exposure": "deferred", "readOnlyTools": ["hi"]}
    entries["far-off"] |= {"exposure": "deferred"}
    path.write_text(json.dumps({"mcpServers": entries}))
    about = json.loads(servers.run("agents", "show", "helper", "--json").stdout)
    (found,) = [item for item in about["surfaces"] if item["surface"] == "dispatch"]
    waiting = [
        "the deferred tools of the extension ops that only read",
        "the deferred tools of the server raw that only read",
    ]
    assert (sorted(found["elsewhere"]), found["refused"]) == (waiting, [])
    told = servers.run("why", "helper", "tool_search").stdout
    assert told.startswith("on fleet, dispatch: helper has tool_search\n")
    assert "it finds the deferred tools of the extension ops, the deferred tools of the server raw\n" in told
    assert "helper does not have tool_search: there is no deferred tool that the agent may use\n" in told
    assert servers.run("why", "helper", HI).stdout.splitlines()[0].endswith(f"helper has {HI}")
    assert "can change things" in servers.run("why", "helper", "mcp__far-off__hi").stdout.splitlines()[0]


@pytest.mark.sample(5)
@pytest.mark.parametrize("asked", ["mcp__far_off__do_it", "mcp__far-off__do-it", "far-off:do-it"])
@pytest.mark.parametrize("listed", ["mcp__far_off__do_it", "mcp__far-off__do-it", "far-off:do-it", "ext:mcp/do-it"])
def test_every_spelling_is_explained_alike(servers, listed, asked):
    put_agent(servers, f"tools: read, {listed}\nreadonly: true")
    path = servers.agent_dir / "mcp.json"
    entries = json.loads(path.read_text())["mcpServers"]
    for vouched in ([], ["do-it"]):
        entries["far-off"]["readOnlyTools"] = vouched
        path.write_text(json.dumps({"mcpServers": entries}))
        answer = json.loads(servers.run("why", "helper", asked, "--json").stdout)["answers"][0]
        broken = [link["step"] for link in answer["chain"] if not link["holds"]]
        assert (answer["granted"], broken) == (bool(vouched), [] if vouched else ["read-only"]), answer


@pytest.mark.attack("I14")
@pytest.mark.parametrize(("fields", "said"), [("tools: none", False), ("tools: read", True)])
def test_unknown_tool_may_be_one_of_an_extension(servers, fields, said):
    put_agent(servers, fields)
    answer = json.loads(servers.run("why", "helper", "deploy", "--json").stdout)
    reason = answer["chain"][-1]["reason"]
    assert (answer["granted"], "it has the tools of the extension ops" in reason) == (False, said), reason


@pytest.mark.attack("I12")
@pytest.mark.parametrize("folder", [".pi/agent/agents", ".codingcode/agents", ".pi/agent/subagents"])
def test_child_with_empty_list_has_nothing(servers, folder):
    put_agent(servers, "approved_tools: []" if "sub" in folder else "tools: []", folder)
    assert ask_child(servers) - {"none"} == ({"subagent_finalize"} if "sub" in folder else set())


@pytest.mark.attack("I12")
@pytest.mark.parametrize("word", ["raw:hi", HI, "ext:mcp/raw:hi"])
def test_flag_makes_an_allow_list(servers, word):
    assert list_offered(servers, "--tools", f"read,{word}")[0] == ["read", HI]


@pytest.mark.attack("I12")
def test_flag_with_hyphens_makes_an_allow_list(servers):
    for word in ("far-off:do-it", "mcp__far-off__do-it", "mcp__far_off__do_it"):
        assert list_offered(servers, "--tools", f"read,{word}")[0] == ["read", "mcp__far-off__do-it"]


@pytest.mark.attack("I12")
@pytest.mark.parametrize(
    "word", ["far-off:do-it", "mcp__far-off__do-it", "mcp__far_off__do_it", "ext:mcp/far-off:do-it"]
)
def test_hyphens_are_denied_in_every_spelling(servers, word):
    put_agent(servers, f"disallowed_tools: {word}")
    assert "mcp__far-off__do-it" in list_offered(servers)[0]
    assert "mcp__far-off__do-it" not in list_offered(servers, "--agent", "helper")[0]
    assert "mcp__far-off__do-it" not in list_offered(servers, "--exclude-tools", word)[0]
    (servers.agent_dir / "subagents.json").write_text(json.dumps({"denyTools": [word]}))
    assert "mcp__far-off__do-it" not in list_offered(servers)[0]


@pytest.mark.attack("I12")
@pytest.mark.parametrize("word", ["mcp__far-off__*", "mcp__far_off__do_it", "mcp__far-off__do-it"])
def test_rule_is_about_tools_with_hyphens(servers, word):
    rule = {"tool": word, "action": "deny", "reason": "not this one"}
    (servers.agent_dir / "subagents.json").write_text(json.dumps({"approvalRules": [rule]}))
    call = {"calls": [{"name": "mcp__far-off__do-it", "arguments": {}}]}
    done = servers.run("-p", "--mode", "json", "begin", replies=[call, {"text": "done"}])
    assert "not this one" in done.stdout
