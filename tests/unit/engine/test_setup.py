import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import IsolationFailed, RetinueError
from retinue.core.run import Outcome, Reason, Status
from retinue.engine.loop import Ending
from retinue.engine.setup import FeatureStack, RunSetup
from retinue.models.scripted import ScriptedModel, parse_script
from tests.run_setup import build_setup

SETUP = build_setup("r", Path("/x"), ScriptedModel(parse_script([])), sections={"a": "b"})


def test_change_leaves_the_original():
    changed = SETUP.change(name="n", tools={})
    assert (changed.name, changed.sections, SETUP.name) == ("n", {"a": "b"}, "")


def test_change_of_unknown_part_fails():
    with pytest.raises(TypeError, match="has no field 'nam'"):
        SETUP.change(nam="n")


DONE = Outcome(Status.COMPLETED, Reason.DONE, "text")
MODEL: Any = None


class Feature:
    def __init__(self, name: str, log: list[str], *, enters: Any = None, leaves: Any = None) -> None:
        self.name = name
        self._log, self._enters, self._leaves = log, enters, leaves

    async def enter(self, setup: RunSetup) -> RunSetup:
        if self._enters is not None:
            raise self._enters
        return setup.change(name=f"{setup.name}{self.name}")

    async def leave(self, outcome: Outcome) -> Outcome:
        self._log.append(self.name)
        if isinstance(self._leaves, Exception):
            raise self._leaves
        if self._leaves is not None:
            await asyncio.sleep(self._leaves)
        return outcome


async def enter(*features: Feature) -> tuple[FeatureStack, RunSetup | Ending]:
    enclosure = FeatureStack()
    return enclosure, await enclosure.enter(build_setup("r", Path("/"), MODEL, features=features))


async def test_features_are_left_in_reverse() -> None:
    log: list[str] = []
    enclosure, setup = await enter(Feature("a", log), Feature("b", log))
    assert isinstance(setup, RunSetup)
    assert (setup.name, bool(enclosure)) == ("ab", True)
    await enclosure.leave(DONE, 5)
    assert (log, enclosure.outcome, bool(enclosure)) == (["b", "a"], DONE, False)


@pytest.mark.parametrize(
    ("error", "words"),
    [(ValueError("x"), "b: ValueError: x"), (RetinueError("x"), "b: x"), (IsolationFailed("x"), "x")],
)
async def test_what_cannot_be_entered_ends_the_run(error: Exception, words: str) -> None:
    log: list[str] = []
    enclosure, ending = await enter(Feature("a", log), Feature("b", log, enters=error), Feature("c", log))
    assert ending == Ending(Reason.ERROR, error=words)
    await enclosure.leave(DONE, 5)
    assert log == ["a"]


async def test_failure_to_undo_spoils_a_success() -> None:
    log: list[str] = []
    features = [Feature("a", log, leaves=ValueError("x")), Feature("b", log, leaves=ValueError("y"))]
    enclosure, _ = await enter(*features)
    await enclosure.leave(DONE, 5)
    error = "b: ValueError: y; a: ValueError: x"
    assert enclosure.outcome == Outcome(Status.FAILED, Reason.ERROR, "text", error=error)
    assert log == ["b", "a"]


async def test_failure_to_undo_leaves_a_stop_a_stop() -> None:
    enclosure, _ = await enter(Feature("a", [], leaves=ValueError("x")))
    await enclosure.leave(Outcome(Status.STOPPED, Reason.USER, error="stopped"), 5)
    assert enclosure.outcome == Outcome(Status.STOPPED, Reason.USER, error="stopped; a: ValueError: x")


async def test_what_is_not_undone_in_time_is_told() -> None:
    log: list[str] = []
    enclosure, _ = await enter(*(Feature(name, log, leaves=60 if name == "b" else None) for name in "abc"))
    await enclosure.leave(DONE, 0.05)
    error = "b: not undone within 0.05 s; a: not undone within 0.05 s"
    assert (enclosure.outcome.status, enclosure.outcome.error, log) == (Status.FAILED, error, ["c", "b"])


def test_run_that_left_nothing_has_crashed() -> None:
    outcome = FeatureStack().outcome
    assert (outcome.status, outcome.reason, bool(FeatureStack())) == (Status.FAILED, Reason.CRASH, False)
