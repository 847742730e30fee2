import random

import pytest

from retinue.durable.cluster.database import Database
from retinue.durable.cluster.workspace_bundle import read_bundle


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000])
async def test_bundle_is_read_in_pieces(database, size):
    data = random.Random(size).randbytes(size)
    async with Database(database) as opened:
        await opened.fetch("INSERT INTO retinue.parcels (digest, data) VALUES ('d', %s)", data)
        assert await read_bundle(opened, "d", piece=1000) == data
        assert await read_bundle(opened, "other", piece=1000) is None
