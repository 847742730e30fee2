import pytest

from retinue.core import events as ev
from retinue.core.messages import TextContent, ToolResultMessage, Usage
from retinue.core.model import Delta
from retinue.core.run import Run, Status
from retinue.ui.conversation_blocks import NOTHING, CurrentActivity, SubagentStreams, describe_activity


def run(activity="thinking"):
    return Run(
        id="r1", parent_id="", depth=1, agent="Explore", description="look", status=Status.RUNNING, activity=activity
    )


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (["read"], "reading"),
        (["bash"], "running command"),
        (["edit"], "editing"),
        (["write"], "writing"),
        (["grep"], "searching"),
        (["find"], "finding files"),
        (["ls"], "listing"),
        (["read", "read", "grep", "grep", "grep"], "reading 2 files, searching 3 patterns"),
        (["bash", "ls", "bash"], "running 2 commands, listing"),
        (["mcp{0}", "mcp{0}"], "mcp{0} × 2"),
        (["\x1b[31mx"], "\\x1b[31mx"),
    ],
)
def test_tools_are_told_as_verbs(tools, words):
    assert describe_activity(run("read"), CurrentActivity(tuple(tools), "I look.")) == words


@pytest.mark.parametrize(
    ("activity", "opening", "words"),
    [
        ("thinking", "", "thinking…"),
        ("", "", "thinking…"),
        ("thinking", " \n\n I found it.\nHere is more.", "I found it."),
        ("thinking", "---\n## The **result**", "The **result**"),
        ("thinking", "x" * 61, "x" * 59 + "…"),
        ("thinking", "x" * 60, "x" * 60),
        ("grep", "I search.", "searching"),
        ("waiting for a worker", "", "waiting for a worker"),
    ],
)
def test_answer_is_told_before_thinking(activity, opening, words):
    assert describe_activity(run(activity), CurrentActivity((), opening)) == words


@pytest.mark.parametrize(
    ("tool", "about", "words"),
    [
        ("read", "src/x.py", "reading src/x.py"),
        ("bash", "npm test", "running npm test"),
        ("grep", "TODO in src", "searching TODO in src"),
        ("find", "*.py", "finding *.py"),
        ("web_search", "herons", "web_search herons"),
        ("bash", "a\nb\x1b" + "c" * 50, "running a b\\x1b" + "c" * 32 + "…"),
    ],
)
def test_one_tool_is_told_with_its_argument(tool, about, words):
    assert describe_activity(run(), CurrentActivity((tool,), "", about)) == words


class Crew:
    """Whoever listens hears what is played."""

    def overhear(self, run_id, listener):
        self.play = listener


def test_glimpse_follows_a_reply_and_its_tools():
    subagent_streams, crew = SubagentStreams(), Crew()
    subagent_streams.hear(ev.RunStarted(run_id="r1", at_ms=1), crew)
    result = ToolResultMessage("c1", "read", [TextContent("x")], False, 1)
    seen = []
    for event in [
        ev.MessageDelta(run_id="r1", delta=Delta("thinking_delta", 0, "hm"), usage=Usage()),
        ev.MessageDelta(run_id="r1", delta=Delta("text_delta", 0, "\nI "), usage=Usage()),
        ev.MessageDelta(run_id="r1", delta=Delta("text_delta", 0, "read."), usage=Usage()),
        ev.ToolStarted(run_id="r1", call_id="c1", name="read", arguments={"path": "src/x.py"}),
        ev.ToolFinished(run_id="r1", result=result),
    ]:
        crew.play(event)
        seen.append(subagent_streams.activity("r1"))
    words = "I read."
    assert seen == [
        NOTHING,
        CurrentActivity((), "I "),
        CurrentActivity((), words),
        CurrentActivity(("read",), words, "src/x.py"),
        CurrentActivity((), words),
    ]
