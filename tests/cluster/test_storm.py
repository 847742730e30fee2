import random

import pytest

from bench.cluster_storm import Storm, Weather, play


@pytest.mark.timeout(240)
async def test_kills_do_no_harm(world, postgres):
    seed = random.randrange(1 << 30)
    harm = await Storm(world, postgres, seed, Weather(runs=12, turns=3, kill_s=2.5)).play()
    assert harm.all == [], (seed, harm)
    assert harm.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(20))
async def test_many_kills_do_no_harm(seed):
    harm = await play(seed, Weather())
    print(f"seed {seed}: {harm.render()}")
    assert harm.all == [], harm
    assert harm.kills > 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "more", [{"sleeps": True}, {"away_s": 30.0}, {"is_tight": True}, {"kills_face": True}], ids=str
)
async def test_worse_does_no_harm(more):
    seed = random.randrange(1 << 30)
    harm = await play(seed, Weather(**more))
    assert harm.all == [], (seed, harm)
