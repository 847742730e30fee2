import pytest

from retinue.core.environment import SERVER, select
from retinue.core.tool import Effect
from retinue.features.mcp.connection import find_command
from retinue.features.mcp.server import McpFailed, McpServer, find_server, name_tools


def test_only_the_user_vouches():
    server = McpServer("s", "x", read_only_tools=("get_*", "list"))
    assert [server.find_effect(name) for name in ("get_a", "list", "listen")] == [
        Effect.READ,
        Effect.READ,
        Effect.EXECUTE,
    ]
    assert McpServer("s", url="https://x").find_effect("a") is Effect.NETWORK


def test_hidden_tools_have_exceptions():
    server = McpServer("s", "x", hidden_tools=("*", "get_bad"), shown_tools=("get_*",))
    assert [server.is_hidden(name) for name in ("put", "get_a", "get_bad")] == [True, False, True]


def test_secrets_stay_out_of_sight():
    server = McpServer("s", url="https://x/mcp?key=abc", env={"KEY": "abc"}, headers={"A": "abc"})
    assert "abc" not in server.place
    assert "abc" not in repr(McpServer("s", "x", env={"KEY": "abc"}, headers={"A": "abc"}))


def test_environment_is_an_allow_list():
    given = {"PATH": "/bin", "OPENAI_API_KEY": "k", "LC_ALL": "C", "LD_PRELOAD": "x", "PYTHONPATH": "y"}
    assert select(given, SERVER) == {"PATH": "/bin", "LC_ALL": "C"}


@pytest.mark.attack("A14")
def test_program_of_the_clone_is_not_found(tmp_path):
    bad = tmp_path / "bin" / "npx"
    bad.parent.mkdir()
    bad.write_text("#!/bin/sh\n")
    bad.chmod(0o755)
    with pytest.raises(McpFailed, match="not found in PATH"):
        find_command(McpServer("s", "npx"), "npx", tmp_path, f"{bad.parent}:.:relative")


def test_relative_command_is_the_projects(tmp_path):
    program = tmp_path / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    own = McpServer("s", "./serve", level="project")
    assert find_command(own, "./serve", tmp_path, "") == f"{tmp_path}/./serve"
    with pytest.raises(McpFailed, match="use an absolute one"):
        find_command(McpServer("s", "./serve"), "./serve", tmp_path, "")


def test_odd_characters_become_underlines():
    assert name_tools("my-files", ["read.all"]) == {"read.all": "mcp__my-files__read_all"}


def test_same_names_all_get_a_hash():
    names = name_tools("s", ["a.b", "a b", "a-b", "c"])
    assert (names["c"], names["a-b"]) == ("mcp__s__c", "mcp__s__a-b")
    assert names["a.b"] != names["a b"]
    assert {names[tool][:12] for tool in ("a.b", "a b")} == {"mcp__s__a_b_"}


def test_long_names_are_cut_to_fit():
    names = name_tools("s" * 40, ["t" * 128, "t" * 127])
    assert [len(name) for name in names.values()] == [64, 64]
    assert len(set(names.values())) == 2


def test_longest_server_owns_the_name():
    assert find_server("mcp__a__b__c", ["a", "a__b"]) == "a__b"
    assert find_server("mcp__x__c", ["a"]) is None
