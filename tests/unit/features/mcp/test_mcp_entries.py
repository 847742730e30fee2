import pytest

from retinue.core.environment import SERVER, select
from retinue.core.tool import Effect
from retinue.features.mcp.program import find_command
from retinue.features.mcp.server import McpFailed, McpServer


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
