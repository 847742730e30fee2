import json

import pytest

from retinue.features.mcp.server import McpServer
from retinue.settings.consent import load_consents, save_consent
from retinue.settings.mcp import load_servers
from retinue.settings.paths import Paths, has_files


@pytest.fixture
def paths(tmp_path):
    for name in ("work/.pi", "work/.codingcode", "home/.codingcode", "home/.pi/agent"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Paths(tmp_path / "work", tmp_path / "work", home / ".pi" / "agent", home)


def write_user(paths, servers, **top):
    (paths.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": servers, **top}))


def write_project(paths, servers, **top):
    (paths.project / ".pi" / "mcp.json").write_text(json.dumps({"mcpServers": servers, **top}))


def load(paths, *, trusted=True, **environment):
    return load_servers(paths, environment, trusted=trusted)


def states(found):
    return {item.server.name: item.state for item in found.found}


def tell(found):
    return [problem.message.partition("mcp.json: ")[2] for problem in found.diagnostics]


def test_nothing_is_read_without_files(paths):
    assert not has_files(paths, trusted=True)
    assert load(paths).found == ()


def test_entry_of_the_user_is_whole(paths):
    entry = {"command": "npx", "args": ["-y", "${PKG}"], "env": {"A": "${B}"}, "timeout": 5, "readOnlyTools": ["get_*"]}
    write_user(paths, {"files": entry})
    assert load(paths, PKG="pkg", B="b").ready == (
        McpServer(
            "files",
            "npx",
            ("-y", "pkg"),
            {"A": "b"},
            timeout_s=5,
            read_only_tools=("get_*",),
            path=str(paths.agent_dir / "mcp.json"),
        ),
    )


@pytest.mark.spec("codingcode:30")
def test_yaml_of_the_user_is_read(paths):
    fields = "name: docs, url: 'https://x.test/mcp', headers: {X: a}, concurrency: 1, autoReconnect: false"
    (paths.home / ".codingcode" / "mcp.yaml").write_text(f"servers:\n  - {{{fields}}}\n")
    server = load(paths).ready[0]
    assert (server.url, server.headers, server.concurrency, server.auto_reconnect) == (
        "https://x.test/mcp",
        {"X": "a"},
        1,
        False,
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"command": "x", "url": "https://a"}, "server s: has both command and url; expected one of them"),
        ({"args": []}, "server s: has neither command nor url; expected one of them"),
        ({"url": "a.test/mcp"}, "server s.url: found 'a.test/mcp'; expected an address that begins with https://"),
        ({"url": "ftp://a"}, "server s.url: found 'ftp://a'; expected an address"),
        ({"url": "https://u:p@a"}, "server s: has a name or password in its url; put it into headers"),
        ({"command": ["npx"]}, "server s.command: found an array; expected text that is not blank; its arguments go"),
        ({"command": "npx -y x"}, "server s.command: found 'npx -y x'; expected one program; its arguments go into"),
        ({"command": "x", "args": "y"}, "server s.args: found 'y'; expected a list of strings"),
        ({"command": "x", "args": [1]}, "server s.args[0]: found 1; expected a string; put numbers in quotes"),
        ({"command": "x", "env": {"A": 1}}, "server s: env.A is not a string of one line; put numbers in quotes"),
        ({"command": "x", "env": {"A=B": "c"}}, "server s.env.'A=B': found 'A=B'; expected the name of a variable"),
        ({"command": "x", "enabled": "yes"}, "server s.enabled: found 'yes'; expected true or false"),
        ({"command": "x", "type": "sse"}, "server s.type: found 'sse'; expected one of stdio, http, streamable-http"),
        ({"command": "x\0"}, "server s.command: found 'x\\x00'; expected text that is not blank"),
        ("x", "server s: found 'x'; expected an object"),
    ],
    ids=str,
)
def test_bad_entry_drops_only_itself(paths, entry, text):
    write_user(paths, {"s": entry, "good": {"command": "x"}})
    found = load(paths)
    assert [server.name for server in found.ready] == ["good"]
    assert tell(found)[0].startswith(text) and tell(found)[0].endswith("; the server is skipped")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"timeout": -1}, "server s.timeout: found -1; expected a number from 0.1 to 3600; 60 is used"),
        (
            {"concurrency": 1000},
            "server s.concurrency: found 1000; expected a whole number from 1 to 64; 3 is used",
        ),
        ({"comand": "y"}, "server s.'comand': unknown field (did you mean 'command'?)"),
        ({"args": ["${NOPE}"]}, "server s.args: uses the variable NOPE, which is not set; an empty text is used"),
        ({"oauth": {"scopes": "x"}}, "server s.oauth.'scopes': has no effect (did you mean 'scope'?)"),
        (
            {"oauth": {"callbackPort": 70000}},
            "server s.oauth.callbackPort: found 70000; expected a whole number from 0 to 65535; 0 is used",
        ),
    ],
    ids=str,
)
def test_wrong_detail_drops_only_itself(paths, entry, text):
    write_user(paths, {"s": {"command": "x", **entry}})
    found = load(paths)
    assert (len(found.ready), tell(found)) == (1, [text])


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"mcpServers": []}', b'{"mcpServers": {"a": {}, "a": {}}}', b"\xff", b'{"mcpServers": NaN}', b"\0"],
    ids=repr,
)
def test_broken_file_is_told_and_skipped(paths, data):
    (paths.agent_dir / "mcp.json").write_bytes(data)
    (paths.home / ".codingcode" / "mcp.yaml").write_text("servers:\n  - name: good\n    command: x\n")
    found = load(paths)
    assert [server.name for server in found.ready] == ["good"]
    assert found.diagnostics[0].severity == "error"


@pytest.mark.parametrize("text", ["servers: x", "servers:\n  - command: x", "servers: [", "other: 1", "- a"])
def test_broken_yaml_names_the_line(paths, text):
    path = paths.home / ".codingcode" / "mcp.yaml"
    path.write_text(text)
    problem = load(paths).diagnostics[0]
    assert problem.message.startswith(f"{path}:") and problem.line is not None


def test_alike_names_are_one_server(paths):
    write_user(paths, {"a-b": {"command": "x"}, "a_b": {"command": "y"}})
    found = load(paths)
    assert [server.command for server in found.ready] == ["x"]
    assert "is overridden by 'a-b'" in found.diagnostics[0].message


@pytest.mark.attack("A2")
def test_project_needs_trust_and_consent(paths):
    write_project(paths, {"s": {"command": "x"}}, enableAllProjectMcpServers=True)
    assert load(paths, trusted=False).found == ()
    found = load(paths)
    assert states(found) == {"s": "unapproved"} and found.ready == ()
    assert found.found[0].notice.endswith("(to see and approve it: retinue trust --mcp s)")
    assert tell(found) == ["enableAllProjectMcpServers: has no effect: the user decides what is started"]


@pytest.mark.attack("A2")
def test_entry_cannot_approve_itself(paths):
    write_project(paths, {"s": {"command": "x", "autoApprove": ["*"], "readOnlyTools": ["*"]}})
    found = load(paths)
    assert (states(found), found.found[0].server.read_only_tools) == ({"s": "unapproved"}, ())
    assert len(found.diagnostics) == 2


@pytest.mark.attack("A12")
@pytest.mark.parametrize("change", [{"command": "y"}, {"args": ["z"]}, {"env": {"A": "b"}}, {"cwd": "/"}], ids=str)
def test_changed_entry_waits_again(paths, change):
    entry = {"command": "x", "args": ["a"]}
    write_project(paths, {"s": entry})
    save_consent(paths, "mcp", "s", entry)
    before = states(load(paths))
    write_project(paths, {"s": {**entry, **change}})
    assert (before, states(load(paths))) == ({"s": "ready"}, {"s": "changed"})


@pytest.mark.attack("A12")
@pytest.mark.parametrize("level", ["user", "project"])
def test_program_is_bound_wherever_it_runs(paths, level):
    program = paths.project / "tools" / "server"
    program.parent.mkdir()
    program.write_text("one")
    entry = {"command": "./tools/server" if level == "project" else str(program), "cwd": "tools"}
    (write_project if level == "project" else write_user)(paths, {"s": entry})
    save_consent(paths, "mcp", "s", load(paths).find("s").entry)
    before = states(load(paths))
    program.write_text("two")
    found = [states(load(paths, trusted=trusted)) for trusted in (True, False)]
    assert (before, found[0]) == ({"s": "ready"}, {"s": "changed"})
    assert found[1] == ({"s": "unapproved"} if level == "user" else {})


@pytest.mark.attack("A12")
def test_consent_is_for_one_project(paths, tmp_path):
    save_consent(paths, "mcp", "s", {"command": "x"})
    (tmp_path / "other").mkdir()
    other = Paths(tmp_path / "other", tmp_path / "other", paths.agent_dir, paths.home)
    assert (set(load_consents(paths, "mcp")[0]), load_consents(other, "mcp")[0]) == ({"s"}, {})


@pytest.mark.attack("A16")
def test_exposed_consents_count_for_nothing(paths):
    save_consent(paths, "mcp", "s", {"command": "x"})
    (paths.own_dir / "trust.json").chmod(0o666)
    write_project(paths, {"s": {"command": "x"}})
    found = load(paths)
    assert states(found) == {"s": "unapproved"}
    assert "nothing in it counts as approved" in found.diagnostics[0].message


def test_withdrawn_consent_is_gone(paths):
    save_consent(paths, "mcp", "s", {"command": "x"})
    save_consent(paths, "mcp", "s", None)
    assert load_consents(paths, "mcp") == ({}, [])


def test_users_server_stays_beside_unapproved(paths):
    write_user(paths, {"s": {"command": "mine"}})
    write_project(paths, {"s": {"command": "theirs"}})
    assert [server.command for server in load(paths).ready] == ["mine"]
    save_consent(paths, "mcp", "s", {"command": "theirs"})
    assert [server.command for server in load(paths).ready] == ["theirs"]


def test_project_can_only_take_away(paths):
    write_user(paths, {"on": {"command": "x"}, "off": {"command": "x", "enabled": False}, "part": {"command": "x"}})
    write_project(
        paths,
        {
            "on": {"enabled": False},
            "off": {"enabled": True},
            "part": {"toolExposure": {"a": "hidden"}, "env": {"B": "c"}},
        },
    )
    found = load(paths)
    assert states(found) == {"on": "disabled", "off": "disabled", "part": "ready"}
    part = found.ready[0]
    assert (part.is_hidden("a"), part.is_hidden("b"), part.env) == (True, False, {})
