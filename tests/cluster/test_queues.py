import asyncio
import gc
import time
import warnings

import psycopg
import pytest

from retinue.durable.cluster.assignment import Assignment
from retinue.durable.cluster.dbos_queues import WaitingRuns

pytestmark = pytest.mark.timeout(120)
RUN = Assignment(
    run_id="r", attempt=1, agent="a", description="", depth=1, task="", sections=(), tools=(), model="m",
    thinking="off", marks={}, trusted=True,
)  # fmt: skip


def wait_for_no_connection(database):
    """The server notices after the client that one is closed; the limit of the test ends this."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(database, autocommit=True) as connection:
        while connection.execute(sql).fetchall() != [(0,)]:
            time.sleep(0.02)


@pytest.mark.sample(2)
@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.02, 0.04, 0.06, 0.1])
async def test_cut_off_sending_leaves_no_connection(database, delay_s):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with WaitingRuns(database) as waiting:
            adding = asyncio.ensure_future(waiting.add(RUN))
            await asyncio.sleep(delay_s)
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            await waiting.cancel(RUN.id)
        gc.collect()
    assert [str(each.message) for each in caught] == []
    wait_for_no_connection(database)


async def test_cut_off_run_is_queued_once(database):
    async with WaitingRuns(database) as waiting:
        adding = asyncio.ensure_future(waiting.add(RUN))
        await asyncio.sleep(0.01)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        await waiting.add(RUN)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT workflow_uuid, status FROM dbos.workflow_status").fetchall() == [
            ("r.1", "ENQUEUED")
        ]
