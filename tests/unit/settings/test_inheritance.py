from retinue.engine.limits import Limits
from retinue.settings.inheritance import inherit
from retinue.settings.request import Request, SessionWish
from retinue.settings.run_config import find_depth_left

MARKS = {
    "PI_SUBAGENT_CHILD": "1",
    "PI_PROVIDER": "mock",
    "PI_MODEL": "m-1",
    "PI_REASONING_LEVEL": "high",
    "RETINUE_MAX_TURNS": "7",
    "RETINUE_GRACE_TURNS": "2",
    "RETINUE_READONLY": "1",
}


def test_nobody_else_inherits():
    assert inherit(Request(), {**MARKS, "PI_SUBAGENT_CHILD": "0"}) == Request()


def test_child_takes_over_the_marks():
    assert inherit(Request(), MARKS) == Request(
        session=SessionWish(is_alone=True),
        limits=Limits(max_turns=7, grace_turns=2),
        is_child=True,
        is_readonly=True,
        inherited_provider="mock",
        inherited_model="m-1",
        inherited_thinking="high",
    )


def test_bad_marks_mean_nothing():
    marks = {"PI_SUBAGENT_CHILD": "1", "RETINUE_MAX_TURNS": "-3", "PI_REASONING_LEVEL": "huge", "PI_MODEL": ""}
    assert inherit(Request(), marks) == Request(session=SessionWish(is_alone=True), is_child=True)


def test_depth_left_is_never_more_than_told():
    child = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1"}
    told = [{}, child, {**child, "PI_SUBAGENT_MAX_DEPTH": "2"}, {**child, "PI_SUBAGENT_MAX_DEPTH": "99"}]
    assert [find_depth_left(marks) for marks in told] == [4, 3, 1, 3]
    assert find_depth_left({**child, "PI_SUBAGENT_DEPTH": "9"}) == 0
