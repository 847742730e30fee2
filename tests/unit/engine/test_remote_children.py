from pathlib import Path

import msgspec
import pytest

from retinue.core.events import (
    Compacted,
    MessageFinished,
    RunFinished,
    RunForgotten,
    RunPlaced,
    RunProgressed,
    RunQueued,
    RunRead,
    RunStarted,
    Warned,
)
from retinue.core.messages import UserMessage
from retinue.core.run import Grant, Outcome, Reason, Run, Status
from retinue.engine.admission import Admission, SpawnRefused
from retinue.engine.clock import make_uuid
from retinue.engine.limits import Bounds, Limits
from retinue.engine.recovery import read_remains
from retinue.engine.remote_children import RemoteChildren, narrow_grant
from retinue.engine.request import RunRequest, store_request
from retinue.engine.run_table import RunTable
from retinue.engine.runner import LiveRun
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock
from tests.run_setup import build_setup

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")
DONE = Outcome(Status.COMPLETED, Reason.DONE, text="done")


class Follower:
    """Whoever follows a run elsewhere."""

    def __init__(self):
        self.said = []

    def pass_on(self, run_id, verb, data):
        self.said.append((run_id, verb, data))

    def restrict(self, tools, *, readonly):
        raise NotImplementedError

    def demand_judgement(self):
        raise NotImplementedError


class Inn:
    """A main agent with the runs `one` and `two` elsewhere."""

    def __init__(self, folder):
        clock = FakeClock()
        self.main = folder / "main.jsonl"
        session = Session.create(cwd="/", directory=None, path=self.main, clock=clock, new_id=make_uuid)
        session.append_custom("opened", {})
        self.root = LiveRun(build_setup("main", Path("/"), ScriptedModel(parse_script([]))), session, clock=clock)
        self.runs = RunTable("main", self.root.bus)
        self.admission = Admission(Bounds(), self.runs, clock, make_uuid, self.main)
        self.live, self.ends, self.events = {"one": Follower(), "two": Follower()}, [], []
        self.remote_children = RemoteChildren(
            self.runs, self.root, self.live, place=self.admission.find_file, ring=self.ends.append, clock=clock
        )
        for run_id in ("one", "two"):
            grant = Grant(tools=("read", "bash"), readonly=run_id == "two")
            run = Run(id=run_id, parent_id="main", depth=1, agent="lead", description="d", surface="fleet", grant=grant)
            self.runs.add(run, REQUEST)
            self.runs.tell(RunStarted(run_id=run_id, grant=grant))
        self.root.bus.listen(self.events.append)

    def queue(self, run_id="g", parent_id="one", host="one", attempt=1, request=REQUEST, **fields):
        run = Run(id=run_id, parent_id=parent_id, depth=1, agent="a", description="d", attempt=attempt, **fields)
        self.remote_children.hear(host, RunQueued(run_id=run_id, run=run, request=store_request(request)))

    def start(self, run_id="g", **place):
        self.queue(run_id, **place)
        self.remote_children.hear(place.get("host", "one"), RunStarted(run_id=run_id, at_ms=1))


@pytest.fixture
def inn(tmp_path):
    made = Inn(tmp_path)
    yield made
    made.root.session.close()


def test_guest_is_listed_below_host(inn):
    wide = Grant(tools=("bash", "write"))
    asked = msgspec.structs.replace(REQUEST, cwd="/etc", session_dir="/etc", transcript_dir="/etc", preface="x")
    inn.queue(parent_id="one", request=asked, output_file="/etc/passwd", grant=wide, queued_ms=1 << 60)
    run, request = inn.runs["g"], inn.runs.find_request("g")
    assert (run.parent_id, run.depth, run.is_guest, run.output_file) == ("one", 2, True, "")
    assert (run.grant, run.queued_ms) == (Grant(tools=("bash",)), FakeClock().now_ms())
    assert request == REQUEST


def test_runs_below_guests_are_too(inn):
    inn.start()
    inn.start("deeper", parent_id="g")
    run = inn.runs["deeper"]
    assert (run.depth, inn.remote_children.find_host("deeper"), run.status) == (3, "one", Status.RUNNING)
    assert inn.remote_children.speak("deeper", "steer", {"text": "x"})
    assert inn.live["one"].said == [("deeper", "steer", {"attempt": 1, "text": "x"})]


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", ".", "main", "one", "two", "x" * 65])
def test_guest_has_its_own_id(inn, run_id):
    inn.queue(run_id)
    assert (list(inn.events), inn.runs["one"].is_guest) == ([], False)


def test_host_speaks_for_its_own(inn):
    inn.start()
    inn.start("other", parent_id="two", host="two")
    before = len(inn.events)
    for run_id in ("two", "other", "one", "main", "nobody"):
        for event in (
            RunFinished(run_id=run_id, outcome=DONE),
            RunPlaced(run_id=run_id, worker="x"),
            RunProgressed(run_id=run_id, turns=9),
            RunForgotten(run_id=run_id),
            Warned(run_id=run_id, text="x"),
            MessageFinished(run_id=run_id, message=UserMessage("x", 1)),
        ):
            inn.remote_children.hear("one", event)
    inn.queue("stolen", parent_id="two")
    inn.queue("stolen", parent_id="main")
    assert (len(inn.events), inn.runs["other"].turns, inn.remote_children.list_messages("other")) == (before, 0, [])


def test_said_twice_is_once(inn):
    said = UserMessage("Dig.", 1)
    for _ in range(2):
        inn.start()
        inn.remote_children.hear("one", RunPlaced(run_id="g", worker="box"))
        inn.remote_children.hear("one", MessageFinished(run_id="g", message=said))
        inn.remote_children.hear("one", RunProgressed(run_id="g", turns=2))
    told = [type(event) for event in inn.events]
    assert (told, inn.remote_children.list_messages("g"), inn.runs["g"].turns) == (
        [RunQueued, RunStarted, RunPlaced],
        [said],
        2,
    )
    for _ in range(2):
        inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    assert (len(inn.events), inn.ends) == (4, ["g"])


def test_outcome_names_nothing_of_elsewhere(inn):
    inn.start()
    told = msgspec.structs.replace(DONE, session_file="/etc/passwd", branch="--force", text="x" * 300_000)
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=told))
    outcome = inn.runs["g"].outcome
    assert (outcome.session_file, outcome.branch) == (str(inn.main.with_suffix("") / "g" / "session.jsonl"), "")
    files = inn.remote_children.find_file("two", "g"), inn.remote_children.find_file("one", "one")
    assert (len(outcome.text), *files) == (200_001, None, None)


def test_file_of_forgotten_run_stays(inn):
    file = inn.main.with_suffix("") / "old" / "session.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    inn.queue("old")
    assert (inn.runs.find("old"), inn.remote_children.find_file("one", "old")) == (None, None)


def test_forgotten_guest_keeps_its_session(inn):
    inn.start()
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    inn.remote_children.hear("one", RunForgotten(run_id="g"))
    kept = inn.remote_children.find_file("one", "g")
    inn.remote_children.settle("one", DONE)
    assert (inn.runs.find("g"), kept) == (None, inn.main.with_suffix("") / "g" / "session.jsonl")
    assert inn.remote_children.find_file("one", "g") is None


def test_end_of_host_ends_guests(inn):
    inn.start()
    inn.start("deeper", parent_id="g")
    inn.remote_children.settle("one", Outcome(Status.STOPPED, Reason.USER))
    ends = [event.run_id for event in inn.events if isinstance(event, RunFinished)]
    assert (ends, inn.runs["g"].status, inn.runs["g"].outcome.reason) == (
        ["deeper", "g"],
        Status.STOPPED,
        Reason.PARENT,
    )


def test_guest_is_resumed_after_host(inn):
    inn.start()
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    with pytest.raises(SpawnRefused, match="belongs to a run on another machine"):
        inn.admission.readmit("g", "more", "")
    inn.runs.tell(RunFinished(run_id="one", outcome=DONE))
    run, _ = inn.admission.readmit("g", "more", "")
    assert (run.attempt, run.is_guest, run.grant) == (2, False, inn.runs["one"].grant)


def test_guests_are_told_of_elsewhere(inn):
    inn.start()
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    remains = read_remains(inn.root.session.customs("retinue.crew"))
    found = remains.find_untold(inn.root.session, "main", FakeClock())
    assert (remains.runs["g"].is_guest, remains.runs["g"].status, found) == (True, Status.COMPLETED, [])


def test_too_many_are_not_heard(inn, monkeypatch):
    monkeypatch.setattr("retinue.engine.remote_children.MOST", 2)
    for run_id in "abc":
        inn.queue(run_id)
    assert [inn.runs.find(run_id) is None for run_id in "abc"] == [False, False, True]


def test_what_a_guest_warns_of_is_told(inn):
    inn.start()
    before = len(inn.events)
    told = [Warned(run_id="g", text="careful"), Compacted(run_id="g", reason="manual", result=None)]
    for event in told:
        inn.remote_children.hear("one", event)
    assert inn.events[before:] == told


def test_names_and_texts_of_elsewhere_are_cut(inn):
    long = "x" * 300_000
    asked = msgspec.structs.replace(
        REQUEST,
        agent=long,
        task=long,
        description=long,
        invocation={long: long, "n": 1, "list": [1], **{f"k{number}": 1 for number in range(30)}},
        session_file="/there.jsonl",
        model="p/m",
        limits=Limits(tokens=5),
    )
    inn.start(request=asked, call_id=long)
    run, request = inn.runs["g"], inn.runs.find_request("g")
    sizes = [len(text) for text in (run.agent, run.call_id, request.task, run.description)]
    assert sizes == [201, 201, 200_001, 2_001]
    shown = list(run.invocation.items())
    assert (len(shown), len(shown[0][0]), len(shown[0][1]), shown[1]) == (19, 201, 2_001, ("n", 1))
    assert (request.keeps_session, request.model, request.limits.tokens) == (False, "p/m", 5)
    inn.remote_children.hear("one", RunPlaced(run_id="g", worker=long))
    inn.remote_children.hear("one", RunProgressed(run_id="g", activity=long))
    assert (len(run.worker), len(run.activity)) == (200, 200)
    for event in (Warned(run_id="g", text=long), Compacted(run_id="g", reason="manual", error=long, result={"a": 1})):
        inn.remote_children.hear("one", event)
    assert (len(inn.events[-2].text), len(inn.events[-1].error), inn.events[-1].result) == (
        2_001, 2_001, {"tokensBefore": 0})  # fmt: skip
    end = Outcome(Status.FAILED, Reason.ERROR, error=long, notes=long, sandbox=long, branch="pi-agent-x")
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=end))
    outcome = run.outcome
    assert [len(text) for text in (outcome.error, outcome.notes, outcome.sandbox)] == [2_001, 2_001, 201]
    assert (outcome.branch, outcome.session_file) == ("pi-agent-x", "")


def test_read_guest_is_read_once(inn):
    inn.start()
    inn.remote_children.hear("one", RunRead(run_id="g"))
    assert not inn.runs["g"].is_read
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE, at_ms=1 << 60))
    before = len(inn.events)
    for _ in range(2):
        inn.remote_children.hear("one", RunRead(run_id="g"))
    assert (inn.runs["g"].is_read, inn.events[before:]) == (True, [RunRead(run_id="g")])
    assert inn.runs["g"].finished_ms == FakeClock().now_ms()


def test_guest_goes_on_under_its_id(inn):
    inn.start()
    inn.queue(attempt=2)
    assert inn.runs["g"].attempt == 1
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    inn.queue(attempt=1)
    assert inn.runs["g"].status is Status.COMPLETED
    inn.queue(attempt=2, queued_ms=7)
    run = inn.runs["g"]
    assert (run.attempt, run.status, run.queued_ms, run.is_guest) == (2, Status.QUEUED, 7, True)


def test_what_is_said_in_a_guest_is_heard_once(inn):
    heard = []
    assert (inn.remote_children.find_bus("g"), inn.remote_children.can_speak("g")) == (None, False)
    inn.start()
    inn.remote_children.find_bus("g").listen(heard.append)
    said = MessageFinished(run_id="g", message=UserMessage("Dig.", 1))
    for event in (said, RunProgressed(run_id="g", turns=3), said):
        inn.remote_children.hear("one", event)
    assert ([type(event) for event in heard], inn.remote_children.can_speak("g")) == (
        [MessageFinished, RunProgressed],
        True,
    )
    inn.remote_children.hear("one", RunFinished(run_id="g", outcome=DONE))
    inn.remote_children.hear("one", RunProgressed(run_id="g", turns=9))
    assert (inn.runs["g"].turns, inn.remote_children.list_messages("g")) == (3, [said.message])
    inn.remote_children.hear("one", RunForgotten(run_id="g"))
    assert (inn.remote_children.find_bus("g"), inn.remote_children.list_messages("g")) == (None, [])


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome(Status.STOPPED, Reason.USER), Status.STOPPED), (DONE, Status.INTERRUPTED), (None, Status.INTERRUPTED)],
)
def test_guest_ends_with_its_host(inn, outcome, status):
    inn.start()
    inn.start("done")
    inn.remote_children.hear("one", RunFinished(run_id="done", outcome=DONE))
    inn.remote_children.settle("one", outcome)
    assert (inn.runs["g"].status, inn.runs["done"].status) == (status, Status.COMPLETED)
    assert (inn.runs["g"].outcome.error, inn.remote_children.find_bus("g")) == ("the run that started it ended", None)


@pytest.mark.parametrize(
    ("told", "most", "grant"),
    [
        (None, None, None),
        (None, Grant(("a",)), Grant(("a",))),
        (Grant(("a",)), None, Grant(("a",))),
        (Grant(("a", "b"), True), Grant(("b", "c")), Grant(("b",), True)),
        (Grant(("b",)), Grant(("b",), True), Grant(("b",), True)),
    ],
)
def test_guest_may_no_more_than_its_parent(told, most, grant):
    assert narrow_grant(told, most) == grant


def test_numbers_of_elsewhere_are_bounded(inn):
    inn.start(attempt=0, queued_ms=-5, call_id="x" * 200)
    run = inn.runs["g"]
    assert (run.attempt, run.queued_ms, run.call_id) == (1, 0, "x" * 200)
    assert (inn.remote_children.speak("g", "steer", {}), inn.remote_children.speak("nobody", "steer", {})) == (
        True,
        False,
    )


def test_guest_that_goes_on_after_a_crash_is_heard(inn):
    inn.queue()
    inn.remote_children.hear("one", RunPlaced(run_id="g", worker="a"))
    assert inn.remote_children.find_bus("g") is None
    inn.runs.tell(RunStarted(run_id="g"))
    inn.remote_children.hear("one", RunPlaced(run_id="g", worker="b"))
    assert inn.remote_children.find_bus("g") is not None
