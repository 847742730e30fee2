import msgspec
from msgspec.structs import replace

from retinue.core.events import RunFinished, RunForgotten, RunQueued, RunRead, RunStarted, RunSteered
from retinue.core.messages import AssistantMessage, TextContent, Usage, UserMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.recovery import CrashOutcomes, ResumableRuns, has_left_copies, read_remains
from retinue.engine.request import RunRequest, store_request
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")


def queued(run_id, attempt=1):
    run = Run(id=run_id, parent_id="main", depth=1, agent="a", description="d", attempt=attempt)
    return RunQueued(run_id=run_id, run=run, request=store_request(REQUEST))


def done(run_id):
    return RunFinished(run_id=run_id, outcome=Outcome(Status.COMPLETED, Reason.DONE, "text"), at_ms=9)


def answer(text, at_ms):
    return AssistantMessage([TextContent(text)], "a", "p", "m", Usage(), "stop", at_ms)


def read(*events):
    return read_remains([msgspec.to_builtins(event) for event in events])


def test_each_run_has_its_last_state():
    remains = read(
        queued("w"), queued("q"), RunStarted(run_id="w", at_ms=5), queued("d"), RunStarted(run_id="d"), done("d")
    )
    assert {run.id: run.status for run in remains.runs.values()} == {
        "w": Status.RUNNING,
        "q": Status.QUEUED,
        "d": Status.COMPLETED,
    }
    assert remains.requests["w"] == REQUEST


def test_read_and_forgotten_runs_are_known():
    remains = read(queued("a"), done("a"), RunRead(run_id="a"), queued("b"), done("b"), RunForgotten(run_id="b"))
    assert [(run.id, run.is_read) for run in remains.runs.values()] == [("a", True)]


def test_resumed_run_is_unread_again():
    remains = read(queued("a"), done("a"), RunRead(run_id="a"), queued("a", 2))
    run = remains.runs["a"]
    assert (run.status, run.attempt, run.is_read) == (Status.QUEUED, 2, False)


def test_resumed_run_waits_behind_the_others():
    remains = read(queued("a"), done("a"), queued("b"), queued("a", attempt=2))
    assert list(remains.runs) == ["b", "a"]


def test_words_before_the_start_are_kept():
    assert read(queued("a"), RunSteered(run_id="a", text="left")).said == {"a": ["left"]}


def test_only_unread_words_are_kept():
    said = [RunSteered(run_id="a", text=text) for text in ("t", "left", "left", "right")]
    remains = read(queued("a"), *said[:2], RunStarted(run_id="a"), *said[2:])
    remains.drop_used(lambda run: ["t", "left"])
    assert remains.said == {"a": ["t", "left", "right"]}


def test_words_outlive_a_crash_and_no_other_end():
    crashed = RunFinished(run_id="a", outcome=Outcome(Status.INTERRUPTED, Reason.CRASH))
    begun = [queued("a"), RunStarted(run_id="a"), RunSteered(run_id="a", text="left")]
    assert read(*begun, crashed, queued("a", 2), RunStarted(run_id="a")).said == {"a": ["left"]}
    assert read(*begun, done("a"), queued("a", 2)).said == {}


def test_forgotten_runs_are_kept_for_views():
    remains = read(queued("a"), queued("b"), done("a"), RunForgotten(run_id="a"))
    remains.adopt("new")
    assert (list(remains.runs), [(run.id, run.parent_id) for run in remains.past.values()]) == (["b"], [("a", "new")])


def test_damaged_entries_are_counted():
    remains = read_remains([{"type": "RunStarted"}, None, msgspec.to_builtins(done("nobody"))])
    assert (remains.runs, remains.damaged) == ({}, 3)


def build(run_id, parent_id):
    return Run(id=run_id, parent_id=parent_id, depth=1, agent="a", description="d", surface="fleet")


def test_run_waits_for_its_parent():
    returning, above, below = ResumableRuns(), build("a", "main"), build("b", "a")
    assert (returning.add(above), returning.add(below)) == (True, False)
    assert (returning.settle("a"), "a" in returning, "b" in returning) == ([below], False, True)


def test_parent_at_work_is_not_waited_for():
    returning, above, below = ResumableRuns(), build("a", "main"), build("b", "a")
    returning.add(above)
    returning.settle("a")
    assert (returning.add(below), list(returning.settle("b"))) == (True, [])


def test_unknown_run_keeps_nobody_waiting():
    assert list(ResumableRuns().settle("a")) == []


def test_only_interrupted_copies_are_left():
    remains = read(queued("a"), queued("b"), RunStarted(run_id="a"))
    remains.requests["b"] = replace(REQUEST, isolation="worktree")
    assert not has_left_copies(remains)
    remains.requests["a"] = replace(REQUEST, isolation="worktree")
    assert has_left_copies(remains)


def test_outcome_of_a_dead_run_is_read_from_its_session(tmp_path):
    clock = FakeClock(now_ms=10)
    main = Session.create(cwd="/", directory=tmp_path, clock=clock, new_id=lambda: "main")
    main.append_message(UserMessage("hello", 1))
    path = main.tree.child_path("a")
    child = Session.create(cwd="/", directory=None, path=path, clock=clock, new_id=lambda: "a", tree=main.tree)
    for message in (UserMessage("t", 6), answer("before", 3), answer("then", 7), UserMessage("left", 8)):
        child.append_message(message)
    child.close()
    remains = read(queued("a"), RunStarted(run_id="a", at_ms=5), queued("b"), RunStarted(run_id="b", at_ms=5))
    outcomes = CrashOutcomes(main, clock, remains, {})
    told = outcomes.judge(remains.runs["a"])
    assert (told.reason, told.text, told.turns, told.is_unbegun) == (Reason.CRASH, "then", 1, False)
    assert outcomes.read_words(remains.runs["a"]) == ["t", "left"]
    assert (outcomes.judge(remains.runs["b"]).is_unbegun, outcomes.read_words(remains.runs["b"])) == (True, [])
    main.close()
