from pathlib import Path

import pytest

from retinue.core.errors import UsageError
from retinue.settings.overrides import Overrides, read_overrides


def test_names_are_those_of_python_or_files():
    assert read_overrides({"max_concurrent": 8, "graceTurns": 2, "default_thinking_level": "high"}) == Overrides(
        {"defaultThinkingLevel": "high"}, {"maxConcurrent": 8, "graceTurns": 2}
    )


def test_sections_are_mappings():
    given = {"limits": {"wall_seconds": 60, "idleSeconds": None}, "retry": {"provider": {"timeout_ms": 5}}}
    assert read_overrides(given) == Overrides(
        {"retry.provider.timeoutMs": 5}, {"limits.wallSeconds": 60, "limits.idleSeconds": None}
    )


def test_values_may_be_of_python():
    given = {"surfaces": ("fleet", "subagent"), "session_dir": Path("/s"), "thinking_budgets": {"low": 5}}
    assert read_overrides(given) == Overrides(
        {"sessionDir": "/s", "thinkingBudgets": {"low": 5}}, {"surfaces": ("fleet", "subagent")}
    )


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        read_overrides({"max_concurent": 8, "grace_turns": 0, "limits": {"wall": 5}})
    assert str(caught.value).splitlines() == [
        "Retinue: unknown setting 'max_concurent' (did you mean 'max_concurrent'?)",
        "Retinue: graceTurns: found 0; expected a whole number from 1 to 1000",
        "Retinue: unknown setting 'limits.wall'",
    ]
