import time

from msgspec import UNSET

from retinue.core.messages import SystemMessage
from retinue.core.model import ToolSpec
from retinue.engine.clock import SystemClock
from retinue.engine.prompt import declare_change

READ, WRITE = (ToolSpec(name, "d", {"type": "object"}) for name in ("read", "write"))


def test_only_what_has_changed_is_declared() -> None:
    before, after = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "new", "d": "4"}
    added = [{"name": "write", "description": "d", "parameters": {"type": "object"}}]
    found = declare_change(before, after, ["read", "bash"], [READ, WRITE], 7)
    assert found == SystemMessage("", 7, {"b": "new", "d": "4", "c": None}, added, [{"name": "bash"}])


def test_same_prompt_and_tools_declare_nothing() -> None:
    assert declare_change({"a": "1"}, {"a": "1"}, ["read"], [READ], 7) is None
    assert declare_change({"a": "1"}, {}, ["read"], [READ], 7) == SystemMessage("", 7, {"a": None}, UNSET, UNSET)


def test_clock_counts_milliseconds() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 60_000
