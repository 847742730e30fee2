import pytest

from retinue.core.messages import ToolCall
from retinue.core.tool import Effect, ToolResult
from retinue.engine.rights import RevokedTools, RevokedToolsHook
from retinue.tools.policy import Rights
from retinue.tools.registry import ToolOptions, build_tools, rename_tools


async def test_tool_is_lost_under_all_names():
    tools = rename_tools(build_tools(ToolOptions()), {"execute_command": "bash", "read_file": "read"})
    revoked = RevokedTools()
    guard = RevokedToolsHook(revoked, "r")
    revoked.lower("r", ["bash"])
    answers = [await guard.before(ToolCall("1", name, {}), tool) for name, tool in tools.items()]
    assert [answer and answer.content[0].text for answer in answers] == [
        "bash was revoked from this agent while it worked",
        None,
    ]


def test_loss_holds_for_all_below():
    revoked = RevokedTools()
    revoked.place("b", "a")
    revoked.place("c", "b")
    revoked.lower("b", ["bash"])
    revoked.lower("b", ["write"], readonly=True)
    revoked.lower("b", ["edit"])
    rights = Rights(("read", "run", "write"), targets={"run": "bash"})
    found = {run_id: revoked.narrow(run_id, rights) for run_id in "abc"}
    assert {run_id: (each.allowed, each.readonly) for run_id, each in found.items()} == {
        "a": (rights.allowed, False),
        "b": (("read",), True),
        "c": (("read",), True),
    }


@pytest.mark.parametrize(
    ("effect", "is_refused"),
    [(Effect.READ, False), (Effect.WRITE, True), (Effect.EXECUTE, True), (Effect.NETWORK, True)],
)
def test_run_made_read_only_changes_nothing(effect, is_refused):
    revoked = RevokedTools()
    revoked.lower("r", readonly=True)
    words = "x can change things, and this agent was made read-only while it worked"
    assert revoked.judge("r", "x", effect) == (words if is_refused else "")


def test_who_is_below_a_forgotten_run_keeps_its_losses():
    revoked = RevokedTools()
    for run_id, parent_id in (("b", "a"), ("c", "b"), ("d", "a")):
        revoked.place(run_id, parent_id)
    revoked.lower("a", ["read"])
    revoked.lower("b", ["bash"], readonly=True)
    rights = Rights(("read", "bash", "write"))
    for run_id in "ba":
        revoked.forget(run_id)
        found = [revoked.narrow(each, rights) for each in "cd"]
        assert [(each.allowed, each.readonly) for each in found] == [(("write",), True), (("bash", "write"), False)]
    assert revoked.narrow("a", rights) == revoked.narrow("b", rights) == rights


def test_next_session_gets_nothing_back():
    revoked, rights = RevokedTools(), Rights(("read", "bash"))
    revoked.succeed("one")
    revoked.lower("one", ["bash"])
    revoked.succeed("two")
    revoked.succeed("three")
    revoked.lower("three", ["read"])
    assert [revoked.narrow(run_id, rights).allowed for run_id in ("two", "three")] == [("read",), ()]


async def test_refusal_is_an_error_and_results_pass():
    (tool,) = (tool for name, tool in build_tools(ToolOptions()).items() if name == "bash")
    revoked, call, result = RevokedTools(), ToolCall("1", "run", {}), ToolResult.of("x")
    guard = RevokedToolsHook(revoked, "r", lambda name: "bash" if name == "run" else name)
    assert (await guard.before(call, tool), await guard.after(call, tool, result)) == (None, result)
    revoked.lower("r", ["bash"])
    assert (await guard.before(call, tool)).is_error
