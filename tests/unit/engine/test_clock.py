import time
import uuid

from retinue.engine.clock import make_uuid


def test_uuid_has_version_and_time() -> None:
    began_ms = time.time_ns() // 1_000_000
    made = [uuid.UUID(make_uuid()) for _ in range(200)]
    ended_ms = time.time_ns() // 1_000_000
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    assert [each for each in made if not began_ms <= each.int >> 80 <= ended_ms] == []
    # What is not fixed is random: each bit is seen both ways.
    fixed = (0xF << 76) | (0x3 << 62)
    ones, zeros = 0, 0
    for each in made:
        ones, zeros = ones | each.int, zeros | ~each.int
    assert (ones & zeros & ((1 << 80) - 1)) | fixed == (1 << 80) - 1
