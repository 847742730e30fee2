"""`--mode json`: pi's stream and ours are equal, record by record, for the same scripted conversation."""

from pathlib import Path

import pytest

from retinue.testing import APIS
from tests.interop.pi_scenarios import STREAMS, Scenario
from tests.interop.pi_streams import normalise
from tests.interop.programs import Played, Program, play, play_wire
from tests.interop.recordings import load_messages, load_stream

# A recording and a fixed version of pi change only together: some of each with every run, all of them in the soak.
FEW = ("text", "parallel", "retry")
scenarios = pytest.mark.parametrize("scenario", STREAMS, ids=lambda one: one.name)
live = pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, id=one.name, marks=() if one.name in FEW else pytest.mark.slow) for one in STREAMS],
)


def to_stream(played: Played) -> list[dict[str, object]]:
    return [record for part in played.streams for record in normalise(part, str(played.cwd))]


def list_shown(played: Played) -> list[dict[str, object]]:
    return [record["message"] for part in played.streams for record in part if record["type"] == "message_end"]


@scenarios
def test_stream_equals_recorded_pi(scenario: Scenario, retinue: Program, tmp_path: Path) -> None:
    played = play(retinue, scenario, tmp_path)
    assert to_stream(played) == load_stream(scenario.name)
    assert list_shown(played) == load_messages(played.session)


@pytest.mark.interop
@live
def test_live_pi_equals_recording(scenario: Scenario, pi: Program, tmp_path: Path) -> None:
    assert to_stream(play(pi, scenario, tmp_path)) == load_stream(scenario.name)


@pytest.mark.parametrize("api", APIS)
def test_wire_stream_equals_recorded_pi(api: str, retinue: Program, tmp_path: Path) -> None:
    assert to_stream(play_wire(retinue, api, tmp_path)) == load_stream(api)


@pytest.mark.interop
@pytest.mark.parametrize("api", [APIS[0], *(pytest.param(api, marks=pytest.mark.slow) for api in APIS[1:])])
def test_live_wire_equals_recording(api: str, pi: Program, tmp_path: Path) -> None:
    assert to_stream(play_wire(pi, api, tmp_path)) == load_stream(api)
