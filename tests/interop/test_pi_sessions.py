"""Sessions: what one program wrote, the other opens and goes on with, nothing lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.chat_server import say, serve_replies
from tests.interop.handmade import HANDMADE, put_handmade
from tests.interop.pi_scenarios import NEXT_PROMPT, SESSIONS, STREAMS, Scenario
from tests.interop.pi_streams import to_conversation
from tests.interop.programs import Program, build_home, finish, go_on, play, start, write_models
from tests.interop.recordings import load_next, put_session

# Where the recordings already cover the rest, and starting the real pi again would only take time.
FEW = ("mixed", "compacted", "interrupted")
scenarios = pytest.mark.parametrize("scenario", SESSIONS, ids=lambda one: one.name)
few = pytest.mark.parametrize("scenario", [one for one in SESSIONS if one.name in FEW], ids=lambda one: one.name)
handmade = pytest.mark.parametrize("name", HANDMADE)
some = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if at > 1 else ()) for at, name in enumerate(HANDMADE)]
)


def without_results(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation without the results of tools, which each program may word for itself when they fail."""
    return [said | {"text": "<result>"} if said["role"] == "tool" else said for said in conversation]


def load_added(session: Path, before: str) -> list[tuple[str, Any]]:
    """Who said what since the session looked like `before`; nothing of that may have changed."""
    after = session.read_text()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    messages = [entry["message"] for entry in added if entry["type"] == "message"]
    return [(one["role"], one["content"][0]["text"]) for one in messages if one["role"] in ("user", "assistant")]


@scenarios
def test_retinue_continues_recorded_session(scenario: Scenario, retinue: Program, tmp_path: Path) -> None:
    cwd = build_home(tmp_path, scenario)
    session = put_session(scenario.name, cwd)
    before = session.read_text()
    chat = go_on(retinue, scenario, tmp_path)
    said = to_conversation(chat.requests[-1], str(cwd))
    if scenario.interrupted:
        assert without_results(said) == without_results(load_next(scenario.name))
    else:
        assert said == load_next(scenario.name)
    assert load_added(session, before) == [("user", NEXT_PROMPT), ("assistant", "More.")]


@pytest.mark.interop
@few
def test_pi_continues_recorded_session(scenario: Scenario, pi: Program, tmp_path: Path) -> None:
    cwd = build_home(tmp_path, scenario)
    session = put_session(scenario.name, cwd)
    before = session.read_text()
    chat = go_on(pi, scenario, tmp_path)
    assert to_conversation(chat.requests[-1], str(cwd)) == load_next(scenario.name)
    assert load_added(session, before) == [("user", NEXT_PROMPT), ("assistant", "More.")]


@pytest.mark.interop
@scenarios
def test_pi_continues_our_session(scenario: Scenario, pi: Program, retinue: Program, tmp_path: Path) -> None:
    played = play(retinue, scenario, tmp_path)
    before = played.session.read_text()
    chat = go_on(pi, scenario, tmp_path)
    said = to_conversation(chat.requests[-1], str(played.cwd))
    assert without_results(said) == without_results(load_next(scenario.name))
    assert load_added(played.session, before) == [("user", NEXT_PROMPT), ("assistant", "More.")]


@pytest.mark.interop
@few
def test_retinue_continues_pi_session(scenario: Scenario, pi: Program, retinue: Program, tmp_path: Path) -> None:
    played = play(pi, scenario, tmp_path)
    before = played.session.read_text()
    chat = go_on(retinue, scenario, tmp_path)
    said = to_conversation(chat.requests[-1], str(played.cwd))
    assert without_results(said) == without_results(load_next(scenario.name))
    assert load_added(played.session, before) == [("user", NEXT_PROMPT), ("assistant", "More.")]


@handmade
def test_retinue_reads_handmade_session(name: str, retinue: Program, tmp_path: Path) -> None:
    cwd = build_home(tmp_path, STREAMS[0])
    put_handmade(name, cwd)
    said = to_conversation(go_on(retinue, STREAMS[0], tmp_path).requests[-1], str(cwd))
    assert without_results(said) == without_results(load_next(name))


@pytest.mark.interop
@some
def test_pi_reads_handmade_session(name: str, pi: Program, tmp_path: Path) -> None:
    cwd = build_home(tmp_path, STREAMS[0])
    put_handmade(name, cwd)
    said = to_conversation(go_on(pi, STREAMS[0], tmp_path).requests[-1], str(cwd))
    assert said == load_next(name)


@pytest.mark.interop
def test_both_programs_take_turns(pi: Program, retinue: Program, tmp_path: Path) -> None:
    scenario = next(one for one in SESSIONS if one.name == "mixed")
    played = play(retinue, scenario, tmp_path)
    for program in (pi, retinue, pi, retinue):
        chat = go_on(program, scenario, tmp_path)
    more = [{"role": "assistant", "text": "More."}, {"role": "user", "text": NEXT_PROMPT}]
    assert to_conversation(chat.requests[-1], str(played.cwd)) == load_next("mixed") + more * 3


@pytest.mark.interop
@pytest.mark.parametrize("order", [("pi", "retinue"), ("retinue", "pi")], ids="-".join)
def test_continue_finds_other_session(order: tuple[str, str], pi: Program, retinue: Program, tmp_path: Path) -> None:
    first, second = ({"pi": pi, "retinue": retinue}[name] for name in order)
    cwd = build_home(tmp_path, STREAMS[0])
    with serve_replies([say("One."), say("Two.")]) as chat:
        write_models(tmp_path, STREAMS[0], chat.url)
        finish(start(first, tmp_path, "one", session=()))
        finish(start(second, tmp_path, "two", session=("--continue",)))
    said = [(one["role"], one["text"]) for one in to_conversation(chat.requests[-1], str(cwd))]
    assert said == [("user", "one"), ("assistant", "One."), ("user", "two")]
    assert len(list(tmp_path.glob("agent/sessions/*/*.jsonl"))) == 1
