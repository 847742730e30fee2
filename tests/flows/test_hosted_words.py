import json

import pytest

from retinue import Retinue
from retinue.core.run import Status
from retinue.durable.cluster.assignment import Assignment, RunMessage
from retinue.durable.cluster.sender import Cluster
from retinue.durable.cluster.worker import WorkerJob
from retinue.durable.cluster.worker_host import HostedRun

WORDS = [
    RunMessage("stop"),
    RunMessage("steer", {"text": "Hurry."}),
    RunMessage("steer", {"text": " "}),
    RunMessage("restrict", {"tools": ["bash"]}),
    RunMessage("restrict", {"tools": 5}),
    RunMessage("answer", {"question": "q", "answer": "yes"}),
    RunMessage("below", {"verb": "stop", "run": "r"}),
    RunMessage("judge", {"wants": {"call": True}, "below": True}),
    RunMessage("ruling", {}),
]
ASSIGNMENT = Assignment(
    run_id="r",
    attempt=1,
    agent="a",
    description="d",
    depth=1,
    task="Work.",
    sections=(),
    tools=(),
    model="p/m",
    thinking="off",
    marks={},
    trusted=True,
)


def host(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "Done."}]}))

    def open_agent(*parts):
        return Retinue(tmp_path, model=f"scripted/{script}")

    job = WorkerJob(ASSIGNMENT, tmp_path, tmp_path, None, None, False, lambda event: None, None, None)
    return HostedRun(job, Cluster("postgresql://nobody@127.0.0.1:9/none"), open_agent)


@pytest.mark.sample(4)
@pytest.mark.parametrize("word", WORDS)
async def test_words_after_the_end_harm_nobody(tmp_path, word):
    hosted = host(tmp_path)
    outcome = await hosted.work()
    hosted.take(word)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "Done.")


@pytest.mark.sample(4)
@pytest.mark.parametrize("word", WORDS)
async def test_words_before_the_beginning_harm_nobody(tmp_path, word):
    hosted = host(tmp_path)
    hosted.take(word)
    outcome = await hosted.work()
    assert outcome.status in (Status.COMPLETED, Status.STOPPED)
