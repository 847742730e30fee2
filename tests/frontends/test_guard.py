"""A prompt that becomes expensive is told once."""

import json
import re

from retinue import Request, Retinue
from retinue.core.events import Asked
from retinue.testing import EventCollector, MockServer
from tests.flows.crew_world import call, to

PRICED = {"cost": {"input": 1, "output": 10, "cacheRead": 0, "cacheWrite": 0}}
USED = {"input": 1_000_000, "output": 100_000}
CHILD = call("Agent", prompt="look", description="d")
REPLIES = [
    to("^go", calls=[CHILD, CHILD], usage=USED),
    to("^go", text="waiting", usage=USED),
    to("^look", calls=[call("ls", path=".")], usage=USED),
    to("^look", text="found", usage=USED),
    to("", text="thanks", usage=USED),
]


def run_prompt(place, *replies, **guard):
    with MockServer.in_thread(list(replies)) as server:
        known = server.models_json(**PRICED)
        place.agent_dir.mkdir(parents=True, exist_ok=True)
        (place.agent_dir / "models.json").write_text(json.dumps(known))
        (place.agent_dir / "subagents.json").write_text(json.dumps({"guard": guard}))
        done = place.run("-p", "--model", "mock/mock-1", "go")
    return done, [line for line in done.stderr.splitlines() if "USD" in line]


def test_print_mode_says_it_in_one_line(place):
    done, lines = run_prompt(place, *REPLIES)
    assert done.status == 0
    (line,) = lines
    assert re.search(r"cost \$6\.00 USD in 3 model calls \(guard\.costUsd is 5\)", line)


def test_one_expensive_call_is_enough(place):
    _, (line,) = run_prompt(place, {"text": "done", "usage": {"input": 6_000_000}})
    assert "cost $6.00 USD in 1 model call (" in line


def test_calls_are_counted_too(place):
    _, lines = run_prompt(place, *REPLIES, costUsd=None, modelCalls=4)
    (line,) = lines
    assert re.search(r"cost \$\d+\.00 USD in 5 model calls \(guard\.modelCalls is 4\)", line)


def test_guard_can_be_switched_off(place):
    done, lines = run_prompt(place, *REPLIES, costUsd=None, modelCalls=None)
    assert (done.status, lines) == (0, [])


def test_doctor_shows_the_limits(place):
    report = json.loads(place.run("doctor", "--json").stdout)
    (item,) = [item for item in report["items"] if item["category"] == "limits"]
    assert item["details"] == "guard: $5 USD or 200 model calls; maxSpawnsPerTree: 200; budget: none"


async def test_front_end_is_asked_once_and_can_stop(tmp_path, agent_dir):
    asks = [{"calls": [call("ls", path=".", limit=n)], "usage": USED} for n in range(1, 10)]
    seen = EventCollector()
    async with MockServer([*asks, {"text": "done"}]) as server:
        (agent_dir / "models.json").write_text(json.dumps(server.models_json(**PRICED)))
        async with Retinue(tmp_path, model="mock/mock-1", request=Request()) as crew:

            def answer(event):
                if isinstance(event, Asked):
                    assert crew.questions.answer(event.question.id, "stop")

            crew.listen(seen)
            crew.listen(answer)
            with crew.questions.attend():
                outcome = await crew.prompt("go")
    (asked,) = [event.question for event in seen.events if isinstance(event, Asked)]
    assert asked.text.startswith("This prompt and its agents have cost $6.00 USD in 3 model calls")
    assert (asked.options, outcome.status, outcome.reason) == (("continue", "stop"), "stopped", "user")
    assert len(server.requests) < 9
