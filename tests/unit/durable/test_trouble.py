import psycopg.errors
import pytest

from retinue.durable.trouble import QUIET_S, DurableTrouble, TroubleNotifier, first_line, recognise, render_notice

FULL = DurableTrouble("full", "no room", "room again")
AWAY = DurableTrouble("away", "away", "room again")
FOLDER = DurableTrouble("folder", "no folder", "folder again")


class Told:
    def __init__(self):
        self.said, self.now_s = [], 100.0
        self.alarm = TroubleNotifier(self.said.append, clock=lambda: self.now_s)


def test_many_waiters_are_told_once():
    told = Told()
    for who in ("one", "two", "one"):
        told.alarm.note(who, FULL)
    told.alarm.clear("one")
    assert (told.said, told.alarm.current) == (["no room"], FULL)
    told.alarm.clear("two")
    assert (told.said, told.alarm.current) == (["no room", "room again"], None)


def test_change_is_told_without_relief():
    told = Told()
    told.alarm.note("one", FULL)
    told.alarm.note("one", AWAY)
    told.alarm.note("two", FOLDER)
    told.alarm.clear("one")
    told.alarm.clear("two")
    assert told.said == ["no room", "away", "no folder", "room again", "folder again"]


def test_what_passes_at_once_is_not_told():
    told = Told()
    for _ in range(3):
        told.alarm.note("one", AWAY)
        told.alarm.clear("one")
    assert told.said == []
    told.alarm.note("one", AWAY)
    told.alarm.note("one", AWAY)
    assert told.said == ["away"]


def test_what_comes_and_goes_is_told_rarely():
    told = Told()
    for _ in range(5):
        told.alarm.note("one", FULL)
        told.alarm.clear("one")
    told.alarm.note("one", FULL)
    told.now_s += QUIET_S
    told.alarm.note("one", FULL)
    assert told.said == ["no room", "room again", "no room"]


def test_worker_tells_of_it_and_takes_it_back():
    told = Told()
    for payload in (render_notice("w1", FULL), render_notice("w2", FULL), "! {", '! {"worker": 1}'):
        told.alarm.hear(payload)
    told.alarm.hear(render_notice("w1", None))
    told.alarm.hear(render_notice("w2", None))
    assert told.said == ["no room", "room again"]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (psycopg.errors.DiskFull("no"), "full", "it has no room left on its disk: no; free some space there"),
        (psycopg.errors.OutOfMemory("out"), "memory", "it is out of memory: out"),
        (psycopg.errors.ReadOnlySqlTransaction("no"), "readonly", "it is read-only: no; name the writable server"),
        (psycopg.errors.QueryCanceled("due to"), "timeout", "it cancels queries after a timeout: due to; raise"),
        (psycopg.errors.IdleInTransactionSessionTimeout("idle"), "contended", "it has conflicting transactions: idle"),
        (psycopg.errors.DeadlockDetected("lock"), "contended", "it has conflicting transactions: lock"),
        (psycopg.OperationalError("FATAL: sorry, too many clients already"), "connections", "it accepts no more"),
        (psycopg.OperationalError("connection refused"), "away", "it cannot be reached: connection refused"),
        (OSError("no route"), "away", "it cannot be reached: no route"),
    ],
)
def test_error_is_recognised(error, kind, text):
    found = recognise(error, "it")
    assert (found.kind, found.text[: len(text)]) == (kind, text)


REFUSED = """connection failed: connection to server at "10.0.0.5", port 5432 failed: FATAL:  password authentication \
failed for user "retinue"
connection to server at "10.0.0.5", port 5432 failed: FATAL:  no pg_hba.conf entry for host "10.0.0.7", no encryption
"""


def test_wrong_password_is_the_reason():
    said = first_line(Exception(REFUSED))
    assert ("password authentication failed for user" in said, "pg_hba" in said) == (True, False)


def test_other_words_are_one_line():
    assert first_line(Exception("no such\n  thing")) == "no such thing"
