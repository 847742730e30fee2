"""The program with MCP servers of its own: who gets their tools, what starts them, what doctor says."""

import json
import sys

import pytest

from tests.flows.mcp_world import PROGRAM

# A server of read-only agents may not write.
LOG = """
try:
    open(os.path.join(os.path.dirname(__file__), "starts"), "a").write("x")
except OSError:
    pass
"""


@pytest.fixture
def server(place):
    """Writes an entry for a server of the user or the project; the server marks each of its starts."""

    def write(name="raw", *, extra="", where=None, **fields):
        path = place.root / f"{name}.py"
        path.write_text(PROGRAM.replace("#EXTRA#", LOG + extra))
        entry = {"command": sys.executable, "args": ["-I", "-S", str(path)], **fields}
        file = where or place.agent_dir / "mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        servers = json.loads(file.read_text())["mcpServers"] if file.exists() else {}
        file.write_text(json.dumps({"mcpServers": {**servers, name: entry}}))
        return file

    return write


def starts(place):
    path = place.root / "starts"
    return len(path.read_text()) if path.exists() else 0


def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def results(done):
    assert done.status == 0, done.stderr
    found = [record for record in done.lines if record["type"] == "tool_execution_end"]
    return [record["result"]["content"][0]["text"] for record in found]


def run(place, *args, replies):
    return place.run("-p", "--mode", "json", *args, "begin", replies=replies)


def test_main_agent_has_the_tools(place, server):
    server()
    done = run(place, replies=[calls("mcp__raw__hi"), {"text": "done"}])
    assert (results(done), done.stderr, starts(place)) == (["hello"], "", 1)


def test_named_tools_are_exact(place, server):
    server()
    server("other")
    replies = [calls("mcp__raw__hi"), calls("mcp__other__hi"), {"text": "done"}]
    first, second = results(run(place, "--tools", "read,mcp__raw__hi", replies=replies))
    assert (first, second[:32]) == ("hello", "Tool 'mcp__other__hi' not found.")
    assert second.endswith("Available: read, mcp__raw__hi")
    assert starts(place) == 1


def test_other_tools_start_no_server(place, server):
    server()
    done = run(place, "--tools", "read", replies=[{"text": "done"}])
    assert (done.status, done.stderr, starts(place)) == (0, "", 0)


def test_excluded_tool_is_left_out(place, server):
    server(extra='TOOLS = [tool("hi"), tool("bye")]')
    replies = [calls("mcp__raw__hi"), calls("mcp__raw__bye"), {"text": "done"}]
    first, second = results(run(place, "--exclude-tools", "raw:hi", replies=replies))
    assert (first[:28], second) == ("Tool 'mcp__raw__hi' not foun", "hello")


def put_agent(place, text, folder=".pi/agent/agents"):
    path = place.home / folder / "helper.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def delegate(prompt="look"):
    arguments = {"subagent_type": "helper", "prompt": prompt, "description": "d"}
    return {"calls": [{"name": "Agent", "arguments": arguments}]}


def ask_child(place, name, *args):
    """The text a child's call of a tool gets."""
    replies = [
        to("^begin", **delegate()),
        to("^begin", text="started"),
        to("^look", **calls(name)),
        to("^look", text="the report"),
        to("task-notification", text="thanks"),
    ]
    done = place.run("-p", *args, "begin", replies=replies)
    assert done.status == 0, done.stderr
    (path,) = (place.work / ".pi" / "output").glob("*.jsonl")
    text = path.read_text()
    return text, done.stderr


@pytest.mark.spec("codingcode:30", "codingcode:31")
def test_listed_servers_reach_the_child(place, server):
    server()
    server("other")
    put_agent(
        place,
        "---\nname: helper\ndescription: d\ntools: [read_file]\nmcpServers: [raw, missing]\n---\n\nWork.\n",
        ".codingcode/agents",
    )
    text, told = ask_child(place, "mcp__raw__hi")
    assert "hello" in text
    assert "agent 'helper': MCP server 'missing' is not configured; it continues without it" in told


@pytest.mark.attack("F7")
def test_readonly_role_gets_vouched_tools(place, server):
    server(extra='TOOLS = [tool("get"), tool("put")]', readOnlyTools=["get"])
    put_agent(place, "---\ndescription: d\nreadonly: true\n---\n\nWork.\n")
    replies = [calls("mcp__raw__get"), calls("mcp__raw__put"), {"text": "done"}]
    first, second = results(run(place, "--agent", "helper", replies=replies))
    assert (first, second[:29]) == ("hello", "Tool 'mcp__raw__put' not foun")


@pytest.mark.attack("A2")
def test_project_server_waits_for_consent(place, server):
    server(where=place.work / ".pi" / "mcp.json")
    replies = [{"text": "done"}]
    untrusted = run(place, replies=replies)
    trusted = run(place, "--approve", replies=replies)
    assert "is not trusted: skipped .pi/mcp.json" in untrusted.stderr
    line = "MCP server 'raw' of this project is not approved: skipped (to see and approve it: retinue trust --mcp raw)"
    assert (trusted.stderr, starts(place)) == (f"retinue: {line}\n", 0)


def test_consent_starts_a_server(place, server):
    server(where=place.work / ".pi" / "mcp.json")
    shown = place.run("trust", "--approve", "--mcp", "raw")
    place.run("trust", "--approve", "--mcp", "raw", "--yes")
    done = run(place, "--approve", replies=[calls("mcp__raw__hi"), {"text": "done"}])
    assert "raw.py" in shown.stdout and "retinue trust --mcp raw --yes" in shown.stderr
    assert results(done) == ["hello"]


@pytest.mark.attack("A12")
def test_consent_ends_with_a_change(place, server):
    file = server(where=place.work / ".pi" / "mcp.json")
    place.run("trust", "--approve", "--mcp", "raw", "--yes")
    file.write_text(file.read_text().replace("raw.py", "evil.py"))
    done = run(place, "--approve", replies=[{"text": "done"}])
    again = place.run("trust", "--approve", "--mcp", "raw")
    assert "has changed since it was approved: skipped" in done.stderr
    assert next(line for line in again.stdout.splitlines() if "evil.py" in line).strip().startswith("+")


def test_consent_needs_a_known_server(place, server):
    server()
    (place.work / ".pi").mkdir()
    own = place.run("trust", "--approve", "--mcp", "raw")
    unknown = place.run("trust", "--approve", "--mcp", "rew")
    assert (own.status, unknown.status) == (2, 2)
    assert "is your own" in own.stderr and "this project has no MCP server 'rew'" in unknown.stderr


def test_doctor_starts_no_server(place, server):
    server()
    server("off", enabled=False)
    server("bad", url="https://x")
    server("theirs", where=place.work / ".pi" / "mcp.json")
    done = place.run("doctor", "--json", "--approve")
    found = [(item["status"], item["message"]) for item in done.lines[0]["items"] if item["category"] == "mcp"]
    assert found == [
        ("fail", "MCP server skipped"),
        ("warn", "theirs waits for approval"),
        ("pass", "raw may be started (your own)"),
        ("info", "off is disabled"),
    ]
    assert starts(place) == 0


@pytest.fixture
def probe(place, monkeypatch):
    """Runs the program with some code before and after it."""

    def run(*args, before="", after="", **options):
        path = place.root / "probe.py"
        path.write_text(f"import sys\n{before}\nfrom retinue.cli.main import main\nstatus = main()\n{after}\n")
        monkeypatch.setenv("RETINUE_BIN", f"{sys.executable} {path}")
        return place.run(*args, **options)

    return run


@pytest.mark.attack("F11")
@pytest.mark.parametrize("has_server", [False, True])
def test_filtered_server_is_never_loaded(place, server, probe, has_server):
    if has_server:
        server(enabled=False)
    after = "print(sorted({'mcp', 'pydantic', 'httpx2'} & set(sys.modules)), file=sys.stderr)"
    done = probe("-p", "hello", after=after, replies=[{"text": "hi"}])
    assert (done.stdout, done.stderr, starts(place)) == ("hi\n", "[]\n", 0)


def test_missing_library_is_told(place, server, probe):
    server()
    before = "from retinue.features.mcp import connection\nconnection.find_spec = lambda name: None"
    told = "the package mcp is not installed: pip install 'retinue[mcp]'"
    assert told in probe("doctor", before=before).stdout
    done = probe("-p", "hello", before=before, replies=[{"text": "hi"}])
    assert (done.stdout, done.stderr) == ("hi\n", f"retinue: MCP server 'raw': {told}\n")
