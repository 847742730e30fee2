from msgspec.structs import replace

from retinue.core.events import RunFinished, RunRead, ToolFinished
from retinue.core.messages import ToolResultMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.bus import Bus
from retinue.engine.register import Register
from retinue.engine.request import RunRequest
from retinue.testing.collector import EventCollector

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")


class Book:
    def __init__(self, *ids):
        """Each run started the next."""
        self.bus, self.events = Bus(), EventCollector()
        self.runs = Register("main", self.bus)
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
    assert (book.runs["a"].is_read, book.events.kinds()) == (True, ["RunFinished"])
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
