"""Sessions under any order of appends, branches, forks, damage and repair, compared with a list of lines."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from retinue.core.messages import UserMessage
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

RUN = "retinue.test_run"
"""Type of the custom entries that a fork leaves behind."""
JUNK = None
SPOILT = b"#" * 40
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
PICKS = st.floats(0, 1, exclude_max=True)


@dataclass(frozen=True)
class Written:
    """An entry as it was appended."""

    id: str
    parent: str | None
    kind: str
    text: str = ""
    first_kept: str | None = None


@dataclass
class Model:
    """What a session file must be read as: its lines after the header, JUNK for those that are spoilt."""

    lines: list[Written | None] = field(default_factory=list)
    leaf: str | None = None
    has_header: bool = True

    @property
    def entries(self) -> list[Written]:
        return [line for line in self.lines if line is not JUNK]

    def link(self) -> tuple[dict[str, str | None], int]:
        """What each entry hangs on when the file is read anew, and how many had to be hung elsewhere."""
        parents: dict[str, str | None] = {}
        orphans, previous = 0, None
        for entry in self.entries:
            is_orphan = entry.parent is not None and entry.parent not in parents
            orphans += is_orphan
            parents[entry.id] = previous if is_orphan else entry.parent
            previous = entry.id
        return parents, orphans

    def path(self, leaf: str | None) -> list[Written]:
        parents, known, found = self.link()[0], {entry.id: entry for entry in self.entries}, []
        while leaf is not None:
            found.append(known[leaf])
            leaf = parents[leaf]
        return found[::-1]

    def said(self) -> list[str]:
        """What the model is shown of the user's words: what the last compaction kept, and what followed."""
        path = self.path(self.leaf)
        last = next((place for place in reversed(range(len(path))) if path[place].kind == "compaction"), None)
        kept = path
        if last is not None:
            ids = [entry.id for entry in path[:last]]
            first = path[last].first_kept
            begin = ids.index(first) if first in ids else last
            kept = [*path[begin:last], *path[last + 1 :]]
        return [entry.text for entry in kept if entry.kind == "message"]


class SessionMachine(RuleBasedStateMachine):
    """One session that is open, with its model; and the bytes of the files it was forked from."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(prefix="retinue-sessions-")
        self.root = Path(self.folder.name)
        self.count = 0
        self.left: dict[Path, bytes] = {}

    def make_id(self) -> str:
        self.count += 1
        return f"session-{self.count}"

    @initialize()
    def begin(self) -> None:
        self.session = self.create()
        self.model = Model()
        self.seen = b""

    def create(self) -> Session:
        return Session.create(cwd="/work", directory=self.root, clock=FakeClock(), new_id=self.make_id)

    def teardown(self) -> None:
        self.session.close()
        self.folder.cleanup()

    def note(self, entry_id: str, kind: str, text: str = "", first_kept: str | None = None) -> None:
        model = self.model
        assert entry_id not in {entry.id for entry in model.entries}
        model.lines.append(Written(entry_id, model.leaf, kind, text, first_kept))
        model.leaf = entry_id

    def pick(self, place: float) -> Written:
        entries = self.model.entries
        return entries[int(place * len(entries))]

    def has_entries(self) -> bool:
        return bool(self.model.entries)

    @rule(text=TEXTS)
    def say(self, text: str) -> None:
        self.note(self.session.append_message(UserMessage(text, 1)), "message", text)

    @rule()
    def record_a_run(self) -> None:
        self.note(self.session.append_custom(RUN, {"runId": "x"}), "run")

    @rule()
    def record_a_fact(self) -> None:
        self.note(self.session.append_custom("other", [1]), "custom")

    @rule(text=TEXTS)
    def rename(self, text: str) -> None:
        self.note(self.session.append_session_info(text), "session_info", " ".join(text.split()))

    @precondition(has_entries)
    @rule(place=PICKS)
    def label(self, place: float) -> None:
        self.note(self.session.append_label(self.pick(place).id, "here"), "label")

    @precondition(has_entries)
    @rule(place=PICKS)
    def compact(self, place: float) -> None:
        first = self.pick(place).id
        self.note(self.session.append_compaction("In short.", first, 10), "compaction", first_kept=first)

    @precondition(has_entries)
    @rule(place=PICKS | st.none())
    def branch(self, place: float | None) -> None:
        self.model.leaf = None if place is None else self.pick(place).id
        self.session.branch(self.model.leaf)

    @precondition(has_entries)
    @rule(place=PICKS)
    def fork(self, place: float) -> None:
        """Go on in a copy of one branch, which has neither its labels nor what is about runs."""
        leaf, former, copy = self.pick(place).id, self.session, self.create()
        copy.copy_branch(former, leaf, leave_out=[RUN])
        former.close()
        self.left[former.path] = former.path.read_bytes()
        kept = [entry for entry in self.model.path(leaf) if entry.kind not in ("label", "run")]
        self.session, self.model, self.seen = copy, Model(), b""
        for entry in kept:
            self.note(entry.id, entry.kind, entry.text, entry.first_kept)

    @precondition(has_entries)
    @rule()
    def reopen(self) -> None:
        self.session.close()
        self.open(damage={})

    def open(self, *, damage: dict[str, int], size: int | None = None) -> None:
        """Open the file anew; `damage` is what is wrong with its end, `size` what is sound of it."""
        path = self.session.path
        before = path.read_bytes()
        self.session = Session.open(path, clock=FakeClock(), new_id=self.make_id)
        model, told = self.model, self.session.damage
        _, orphans = model.link()
        wrong = (told.bad_lines, told.orphans, told.missing_header, told.torn_bytes, told.nul_bytes)
        junk = len(model.lines) - len(model.entries) + (not model.has_header)
        missing = not model.has_header and bool(model.entries)
        assert wrong == (junk, orphans, missing, damage.get("torn", 0), damage.get("nul", 0))
        sound = before[:size]
        assert path.read_bytes() == (sound if sound.endswith(b"\n") else sound + b"\n")
        model.leaf = model.entries[-1].id if model.entries else None
        self.seen = b""

    @precondition(has_entries)
    @rule(cut=PICKS)
    def tear(self, cut: float) -> None:
        """A crash inside of a write."""
        self.session.close()
        path = self.session.path
        whole = path.read_bytes()
        line = json.dumps({"type": "message", "id": "torn", "parentId": self.model.leaf}).encode()
        torn = line[: 1 + int(cut * (len(line) - 1))]
        path.write_bytes(whole + torn)
        side = path.with_name(f"{path.name}.damaged")
        kept = side.read_bytes() if side.exists() else b""
        self.open(damage={"torn": len(torn)}, size=len(whole))
        assert side.read_bytes() == kept + torn + b"\n"

    @precondition(has_entries)
    @rule(nul=st.integers(0, 600))
    def lose_the_newline(self, nul: int) -> None:
        """A crash of the machine: the end is missing, or is a block of zeros. A spoilt last line is a torn end then."""
        self.session.close()
        path = self.session.path
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes(nul))
        torn = 0
        if self.model.lines[-1] is JUNK:
            self.model.lines.pop()
            torn = len(SPOILT)
        self.open(damage={"nul": nul, "torn": torn}, size=len(whole) - 1 - torn)

    @precondition(has_entries)
    @rule(place=PICKS, inserted=st.booleans())
    def spoil(self, place: float, inserted: bool) -> None:
        """A line that cannot be read, before another one or instead of it; of an only entry something must be left."""
        self.session.close()
        path, model = self.session.path, self.model
        lines = path.read_bytes().split(b"\n")
        at = int(place * len(model.lines))
        inserted = inserted or len(model.entries) < 2
        lines[at + 1 : at + 1 + (not inserted)] = [SPOILT]
        model.lines[at : at + (not inserted)] = [JUNK]
        path.write_bytes(b"\n".join(lines))
        self.open(damage={})

    @precondition(lambda self: self.has_entries() and self.model.has_header)
    @rule()
    def lose_the_header(self) -> None:
        self.session.close()
        path = self.session.path
        _, _, rest = path.read_bytes().partition(b"\n")
        path.write_bytes(b"#\n" + rest)
        self.model.has_header = False
        self.open(damage={})

    @precondition(has_entries)
    @rule()
    def look(self) -> None:
        """Somebody else reads the file meanwhile, and changes nothing."""
        before = self.session.path.read_bytes()
        other = Session.open(self.session.path, clock=FakeClock(), new_id=self.make_id, read_only=True)
        assert [entry.id for entry in other.all_entries()] == [entry.id for entry in self.model.entries]
        other.close()
        assert self.session.path.read_bytes() == before

    @invariant()
    def reads_as_the_model(self) -> None:
        session, model = self.session, self.model
        assert session.leaf_id == model.leaf
        assert [entry.id for entry in session.all_entries()] == [entry.id for entry in model.entries]
        assert [entry.id for entry in session.entries()] == [entry.id for entry in model.path(model.leaf)]
        context = session.context()
        assert [each.content for each in context.messages if isinstance(each, UserMessage)] == model.said()
        assert len(list(session.customs(RUN))) == sum(entry.kind == "run" for entry in model.entries)
        names = [entry.text for entry in model.entries if entry.kind == "session_info"]
        assert session.name == (names[-1] if names else "")

    @invariant()
    def nothing_written_is_changed(self) -> None:
        now = self.session.path.read_bytes() if self.session.path.exists() else b""
        assert now.startswith(self.seen)
        self.seen = now
        assert {path: path.read_bytes() for path in self.left} == self.left


@pytest.mark.hypothesis
def test_any_order_keeps_what_was_said():
    run_state_machine_as_test(
        SessionMachine, settings=settings(SessionMachine.TestCase.settings, stateful_step_count=25)
    )
