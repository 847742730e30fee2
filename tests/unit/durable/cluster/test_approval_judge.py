import pytest

from retinue.core.messages import ToolCall
from retinue.durable.cluster.approval import ApprovalRequest, SentCall
from retinue.durable.cluster.approval_judge import ApprovalJudge
from retinue.models.script_file import parse_script
from retinue.models.scripted import ScriptedModel
from retinue.tools.registry import ToolOptions, build_tools, rename_tools
from tests.run_setup import build_setup


class Witness:
    """Notes under which name a call is judged."""

    def __init__(self):
        self.seen = []

    async def before(self, call, tool):
        self.seen.append((call.name, tool.spec.name))

    async def after(self, call, tool, result):
        return result


@pytest.mark.parametrize("name", ["read_file", "read", "look"])
async def test_call_keeps_its_name(tmp_path, name):
    own = build_tools(ToolOptions())
    here = rename_tools(own, {"read_file": "read", "read": "read"})
    there = rename_tools(own, {name: "read"})
    model, witness = ScriptedModel(parse_script([{"text": "x"}])), Witness()
    court = ApprovalJudge(build_setup("r", cwd=tmp_path, model=model, tools=here, hooks=(witness,)))
    called = SentCall.of(ToolCall("c1", name, {"path": "x"}), there[name], "/there", ())
    assert (await court.judge(ApprovalRequest(key="k", kind="call", call=called))).passes
    shown = name if name in here else "read_file"
    assert witness.seen == [(shown, shown)]
