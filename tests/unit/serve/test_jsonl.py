import json

from retinue.core import events as ev
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.serve.jsonl import JsonFrontend

RUN = Run(id="r", parent_id="m", depth=1, agent="Explore", description="d")
DONE = Outcome(Status.COMPLETED, Reason.DONE)


def show(events, life=None):
    written = []
    face = JsonFrontend(written.append, life)
    for event in events:
        face(event)
    return [json.loads(line) for line in written]


def test_childs_end_does_not_settle_the_stream():
    events = [
        ev.RunQueued(run_id="r", run=RUN, request={}),
        ev.RunFinished(run_id="r", outcome=DONE),
        ev.RunFinished(run_id="m", outcome=DONE),
    ]
    assert [record["type"] for record in show(events)] == ["agent_settled"]


def test_life_is_told_by_whoever_knows_it():
    events = [ev.RunQueued(run_id="r", run=RUN, request={}), ev.RunRead(run_id="r"), ev.RunStarted(run_id="m")]

    def life(event):
        return {"type": "subagents:created", "id": event.run_id} if isinstance(event, ev.RunQueued) else None

    assert show(events, life) == [{"type": "subagents:created", "id": "r"}]
