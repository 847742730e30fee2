from msgspec.structs import replace

from retinue.core.events import RunFinished, RunRead, RunStarted, ToolFinished
from retinue.core.messages import ToolResultMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.bus import Bus
from retinue.engine.recovery import StoredRuns
from retinue.engine.request import RunRequest
from retinue.engine.run_table import RunTable
from retinue.testing.clock import EventCollector

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")


class Book:
    def __init__(self, *ids):
        """Each run started the next."""
        self.bus, self.events = Bus(), EventCollector()
        self.runs = RunTable("main", self.bus)
        for depth, (run_id, above) in enumerate(zip(ids, ("main", *ids), strict=False), 1):
            run = Run(id=run_id, parent_id=above, depth=depth, agent="a", description="d", surface="fleet")
            self.runs.add(run, replace(REQUEST, occasion=f"at {run_id}"))
        self.bus.listen(self.events)

    def end(self, *ids):
        outcome = Outcome(Status.COMPLETED, Reason.DONE)
        self.runs.tell_all([RunFinished(run_id=run_id, outcome=outcome, at_ms=1) for run_id in ids])


def test_run_with_active_child_stays_known():
    book = Book("a", "b", "c")
    book.end("a", "b")
    assert (book.runs.forget("a"), book.runs.has_active_below("a")) == (False, True)
    book.end("c")
    assert [book.runs.forget(run_id) for run_id in ("c", "b", "a", "a")] == [True, True, True, False]
    assert (book.runs.list_newest(), book.runs.find_occasion("at a")) == ([], None)
    assert [(run.id, run.status) for run in book.runs.past.values()] == [(each, Status.COMPLETED) for each in "cba"]


def test_all_is_known_before_it_is_told():
    book = Book("a", "b")
    seen = []
    book.bus.listen(lambda event: seen.append([run.id for run in book.runs.list_active()]), kinds=(RunFinished,))
    book.end("a", "b")
    assert seen == [[], []]


def test_read_counts_once_the_call_ends():
    book, reader = Book("a"), Bus()
    book.end("a")
    book.runs.tell_read("a", "call", reader)
    assert (book.runs["a"].is_read, book.events.kinds(), reader.is_watched) == (True, ["RunFinished"], False)
    seen = []
    for call_id in ("other", "call", "call"):
        result = ToolResultMessage(call_id, "t", [], is_error=False, timestamp=1)
        reader.publish(ToolFinished(run_id="main", result=result))
        seen.append(len(book.events.events[1:]))
    assert (seen, book.events.events[1:]) == ([0, 1, 1], [RunRead(run_id="a")])


def test_what_was_said_is_told_once():
    book = Book("a")
    book.runs.say("a", "one")
    book.runs.say("a", "two")
    assert (list(book.runs.take_said("a")), list(book.runs.take_said("a"))) == (["one", "two"], [])


def test_run_without_parent_is_noticed():
    book = Book("a", "b")
    before = [book.runs.has_parent(book.runs[run_id]) for run_id in ("a", "b")]
    book.end("a")
    assert (before, [book.runs.has_parent(book.runs[run_id]) for run_id in ("a", "b")]) == ([True, True], [True, False])


def test_runs_are_found_by_id_and_occasion():
    book = Book("a", "b")
    assert (book.runs.find("b"), book.runs.find("c")) == (book.runs["b"], None)
    assert (book.runs.find_occasion("at b"), book.runs.find_occasion("at c")) == (book.runs["b"], None)
    assert book.runs.find_request("a").occasion == "at a"
    assert (book.runs.list_parents(), book.runs.list_children("a")) == (["main", "a"], [book.runs["b"]])


def test_newest_run_is_listed_first():
    book = Book()
    times = {"old": (1, 0), "late": (2, 9), "new": (5, 0), "twin": (5, 0), "early": (3, 4)}
    for run_id, (queued_ms, started_ms) in times.items():
        run = Run(id=run_id, parent_id="main", depth=1, agent="a", description="d")
        book.runs.add(replace(run, queued_ms=queued_ms, started_ms=started_ms), REQUEST)
    assert [run.id for run in book.runs.list_newest()] == ["late", "twin", "new", "early", "old"]


def test_active_runs_above_and_below_are_noticed():
    book = Book("a", "b", "c")

    def look(runs):
        return [(runs.has_active_above(runs[run_id]), runs.has_active_below(run_id)) for run_id in ("a", "b", "c")]

    assert look(book.runs) == [(False, True), (True, True), (True, False)]
    book.end("b")
    assert look(book.runs) == [(False, True), (True, True), (True, False)]
    book.end("a", "c")
    assert look(book.runs) == [(False, False)] * 3


def test_what_happens_to_a_run_is_known_and_told():
    book = Book("a")
    run = Run(id="b", parent_id="a", depth=2, agent="a", description="d")
    book.runs.add(run, REQUEST)
    book.runs.tell(RunStarted(run_id="b", at_ms=5))
    book.runs.tell_dead(RunFinished(run_id="b", outcome=Outcome(Status.INTERRUPTED, Reason.CRASH), at_ms=7))
    assert (run.status, run.started_ms, run.finished_ms) == (Status.INTERRUPTED, 5, 7)
    assert book.events.kinds() == ["RunQueued", "RunStarted", "RunFinished"]
    assert book.events.events[0].request["task"] == "t"


def test_nothing_is_kept_of_a_forgotten_run():
    book = Book("a", "b")
    book.runs.say("b", "one")
    book.end("a", "b")
    assert book.runs.forget("a")
    assert (book.runs.list_parents(), [run.id for run in book.runs.list_newest()]) == (["main", "a"], ["b"])
    assert book.runs.forget("b")
    assert (list(book.runs.take_said("b")), book.events.kinds()[2:]) == ([], ["RunForgotten"] * 2)


def test_runs_of_an_earlier_process_are_taken_over():
    book = Book()
    made = {
        run_id: Run(id=run_id, parent_id=above, depth=depth, agent="a", description="d")
        for run_id, above, depth in (("a", "before", 1), ("b", "a", 2))
    }
    book.runs.take_over(StoredRuns(runs=made, requests=dict.fromkeys(made, REQUEST), said={"a": ["one"], "b": []}))
    assert [(run.id, run.parent_id) for run in book.runs.list_active()] == [("a", "main"), ("b", "a")]
    assert (book.runs.take_said("a"), book.runs.take_said("b"), book.events.kinds()) == (["one"], (), [])
