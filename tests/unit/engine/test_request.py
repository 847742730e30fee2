import msgspec

from retinue.engine.request import RunRequest

STORED = {"agent": "a", "task": "t", "description": "d", "surface": "fleet"}


def test_stored_request_that_says_little_is_a_plain_run() -> None:
    """Older sessions hold fewer fields: such a run works in the background, in its turn, with a session."""
    request = msgspec.convert(STORED, RunRequest)
    assert (request.is_background, request.keeps_session, request.join) == (True, True, "async")
    unset = [request.skips_queue, request.isolated, request.is_model_chosen, request.strict_idle, request.extra_depth]
    assert (unset, request.allow_write) == ([False, False, False, False, 0], None)
