import random

import pytest

from bench.cluster import open_world, storm


@pytest.mark.timeout(240)
async def test_kills_do_no_harm(world):
    seed = random.randrange(1 << 30)
    harm = await storm(world, seed, runs=12, kill_s=4)
    assert harm.is_none, (seed, harm)
    assert harm.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(20))
async def test_many_kills_do_no_harm(seed):
    with open_world() as world:
        harm = await storm(world, seed, runs=300)
    print(f"seed {seed}: {harm.render()}")
    assert harm.is_none, harm
    assert harm.kills > 0
