import pytest

from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.models.thinking_levels import budget_tokens, clamp_level, supported_levels


def info(reasoning=True, **levels):
    return ModelInfo("p", "m", "x", reasoning=reasoning, thinking_level_map=levels)


@pytest.mark.parametrize(
    ("model", "clamped"),
    [
        (info(reasoning=False), ["off"] * 7),
        (info(), ["off", "minimal", "low", "medium", "high", "high", "high"]),
        (info(max="max"), ["off", "minimal", "low", "medium", "high", "max", "max"]),
        (info(off=None, minimal=None), ["low", "low", "low", "medium", "high", "high", "high"]),
        (info(off=None, low=None, medium=None), ["minimal", "minimal", "high", "high", "high", "high", "high"]),
    ],
)
def test_level_is_clamped_to_the_nearest(model, clamped):
    assert [clamp_level(model, level) for level in THINKING_LEVELS] == clamped
    assert set(clamped) == set(supported_levels(model))


@pytest.mark.parametrize(
    ("level", "ceiling", "tokens"), [("low", 64_000, 2048), ("high", 5000, 3976), ("high", 500, 0)]
)
def test_budget_leaves_room_to_answer(level, ceiling, tokens):
    assert budget_tokens(ModelInfo("p", "m", "a"), level, ceiling) == tokens
