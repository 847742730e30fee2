import msgspec
import pytest

from retinue.engine.limits import Limits
from retinue.engine.request import RunRequest, read_request, store_request

STORED = {"agent": "a", "task": "t", "description": "d", "surface": "fleet"}


def test_stored_request_that_says_little_is_a_plain_run() -> None:
    """Older sessions hold fewer fields: such a run works in the background, in its turn, with a session."""
    request = read_request(STORED)
    assert (request.is_background, request.keeps_session, request.join) == (True, True, "async")
    unset = [request.skips_queue, request.isolated, request.is_model_chosen, request.extra_depth]
    assert (unset, request.allow_write, request.limits) == ([False, False, False, 0], None, Limits())


def test_limits_are_stored_as_fields_of_the_request() -> None:
    request = RunRequest(**STORED, limits=Limits(max_turns=3, wall_s=2.5, strict_idle=True, tokens=7))
    stored = store_request(request)
    assert "limits" not in stored and "grace_turns" not in stored
    assert {**STORED, "max_turns": 3, "wall_s": 2.5, "strict_idle": True, "tokens": 7}.items() <= stored.items()
    assert read_request(stored) == request


def test_stored_limit_that_is_none_is_no_request() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"wall_s is '-1\.0'"):
        read_request({**STORED, "wall_s": -1})
