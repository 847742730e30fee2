"""Turns database errors into messages for the user, each shown once and again when it changes.

Callers report what they wait for; this file decides how often the user sees it. Must not know connections.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from retinue.core.errors import quote

QUIET_S = 30.0
"""The same trouble is not reported again within this time: a nearly full disk rejects only some writes."""
MOST_TOLD = 1000
MARK = "! "
"""Prefix of notices that a worker sends to a front end; no run id begins with it."""
RIGHTS: Final = "rights"
BRIEF: Final = ("away", "contended")
"""Kinds that may be over at the next attempt, so only a repetition is reported."""
_TEXTS: Final = {
    "full": "has no room left on its disk",
    "memory": "is out of memory",
    "connections": "accepts no more connections",
    "limit": "has reached one of its limits",
    "readonly": "is read-only",
    "timeout": "cancels queries after a timeout",
    "disk": "has trouble with its files",
    RIGHTS: "refuses this role",
    "contended": "has conflicting transactions",
    "away": "cannot be reached",
}
REMEDIES: Final = {
    "full": "free some space there",
    "memory": "give it more, or use fewer workers",
    "connections": "raise its max_connections or the connection limit of this role, or close some connections",
    "limit": "check its settings",
    "readonly": "name the writable server, or remove default_transaction_read_only from it",
    "timeout": "raise statement_timeout and lock_timeout for this role",
    "disk": "check its log",
    RIGHTS: "connect as the role that owns the tables, or have that role grant rights to this one",
    "contended": "check its log",
}
_STATES: Final = {
    "53100": "full",
    "53200": "memory",
    "53300": "connections",
    "53400": "limit",
    "25006": "readonly",
    "57014": "timeout",
    "55P03": "timeout",
    "42501": RIGHTS,
    "25P02": "contended",
    "25P03": "contended",
}
_CLASSES: Final = {"53": "limit", "58": "disk", "40": "contended"}
_CROWDED: Final = ("too many clients already", "too many connections for", "remaining connection slots are reserved")
"""A refused connection has no SQLSTATE, only this text."""


class DurableTrouble(msgspec.Struct, frozen=True):
    """A condition that prevents runs from continuing."""

    kind: str
    text: str
    """What it is, and what to do."""
    over: str = "the database is available again"
    """The message when it is over."""


class WorkerNotice(msgspec.Struct, frozen=True):
    """What a worker sends to the front ends of its runs."""

    worker: str
    trouble: DurableTrouble | None
    """None when the trouble is over."""


class TroubleNotifier:
    """Notifies the user of troubles that components wait for."""

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        *,
        subject: str = "the database",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.subject = subject
        self.say = say
        self._clock = clock
        self._waits: dict[object, DurableTrouble] = {}
        self._once: set[object] = set()
        """Waiters that have met a possibly brief trouble only once."""
        self._told: dict[str, DurableTrouble] = {}
        self._last_s: dict[str, float] = {}

    @property
    def current(self) -> DurableTrouble | None:
        """The trouble that the user was notified of and that still lasts."""
        return next(iter(self._told.values()), None)

    def note(self, who: object, trouble: DurableTrouble) -> None:
        """Record that `who` waits for this trouble to end."""
        if trouble.kind in BRIEF and who not in self._waits:
            self._once.add(who)
        else:
            self._once.discard(who)
        self._waits[who] = trouble
        self._settle()

    def is_waiting(self, who: object) -> bool:
        return who in self._waits

    def clear(self, who: object) -> None:
        """Record that `who` no longer waits."""
        if self._waits.pop(who, None) is not None:
            self._once.discard(who)
            self._settle()

    def hear(self, payload: str) -> None:
        """Process a worker's notice; an unknown format of a newer worker is ignored."""
        try:
            notice = msgspec.json.decode(payload.removeprefix(MARK), type=WorkerNotice)
        except msgspec.DecodeError:
            return
        if notice.trouble is None:
            self.clear(notice.worker)
        else:
            self.note(notice.worker, notice.trouble)

    def _settle(self) -> None:
        waits = [trouble for who, trouble in self._waits.items() if who not in self._once]
        there = {trouble.kind: trouble for trouble in reversed(waits)}
        passed = [self._told.pop(kind) for kind in list(self._told) if kind not in there]
        still = {trouble.over for trouble in there.values()}
        for over in dict.fromkeys(trouble.over for trouble in passed if trouble.over not in still):
            self.say(over)
        for kind, trouble in there.items():
            now_s = self._clock()
            if kind not in self._told and now_s - self._last_s.get(kind, -QUIET_S) >= QUIET_S:
                self._told[kind], self._last_s[kind] = trouble, now_s
                self.say(trouble.text)


def recognise(error: BaseException, subject: str) -> DurableTrouble:
    """Interpret a driver's error; `subject` names the database in messages."""
    state = getattr(error, "sqlstate", None) or ""
    told = first_line(error)
    kind = _STATES.get(state) or _CLASSES.get(state[:2])
    if kind is None:
        kind = "connections" if any(words in told for words in _CROWDED) else "away"
    remedy = f"; {REMEDIES[kind]}" if kind in REMEDIES else ""
    return DurableTrouble(kind, f"{subject} {_TEXTS[kind]}: {told}{remedy}")


def render_notice(worker: str, trouble: DurableTrouble | None) -> str:
    if trouble is not None:
        trouble = msgspec.structs.replace(trouble, text=trouble.text[:MOST_TOLD])
    return MARK + msgspec.json.encode(WorkerNotice(worker, trouble)).decode()


def first_line(error: BaseException) -> str:
    """Return a driver's message as one line, escaped."""
    # Without the context lines of the database, which do not help the user.
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    # After a wrong password the driver retries without encryption; the error of that attempt is misleading.
    told = [line for line in said.splitlines() if "password authentication failed" in line]
    text = " ".join((told[0] if told else said).split())
    return quote(text, 300)[1:-1]
