import json
import random
from pathlib import Path

import pytest

from bench.crash import find_lost, is_acknowledgement, sweep

SAMPLE, PER_TEST = 4, 2


@pytest.mark.parametrize("part", range(SAMPLE // PER_TEST))
def test_killed_run_keeps_what_it_showed(part: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    lost, unopened, _, _ = sweep(PER_TEST, seed)
    assert (lost, unopened) == ([], []), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_hundred_kills_lose_nothing() -> None:
    seed = random.SystemRandom().randrange(2**32)
    lost, unopened, acknowledged, landed = sweep(500, seed)
    assert (lost, unopened) == ([], []), f"seed {seed}"
    assert acknowledged > 500 and landed > 250


def test_lost_records_are_noticed(tmp_path: Path) -> None:
    kept, lost = ({"role": "user", "content": text, "timestamp": 1} for text in ("kept", "lost"))
    session = tmp_path / "session.jsonl"
    session.write_text(json.dumps({"type": "message", "message": kept}) + "\n")
    records = [
        {"type": "message_end", "message": kept},
        {"type": "message_end", "message": lost},
        {"type": "tool_execution_end", "toolCallId": "c1"},
        {"type": "turn_end"},
    ]
    assert find_lost([record for record in records if is_acknowledgement(record)], session) == records[1:3]
