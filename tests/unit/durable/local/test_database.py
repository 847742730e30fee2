import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from functools import partial

import pytest

from retinue.durable.local.database import RunDatabase, RunRow, drop_run, put_pieces, put_run, read_pieces, read_runs
from retinue.durable.local.writer import WriterThread
from retinue.durable.session_files import RecordError, RecordPart

RUN = RunRow("s", "r", 1, 0, "/main.jsonl")


def piece(place, data=b"line\n"):
    return RecordPart("session", "session.jsonl", place, data)


def keep(*pieces):
    return partial(put_pieces, session="s", run="r", pieces=pieces)


def read(ledger):
    return ledger.transact([read_runs, partial(read_pieces, session="s", run="r")])


def test_kept_pieces_are_read_in_order(tmp_path):
    ledger = RunDatabase(tmp_path / "own" / "runs.db")
    ledger.transact([partial(put_run, entry=RUN), keep(piece(5)), keep(piece(0), piece(10))])
    assert read(ledger) == [[RUN], [piece(0), piece(5), piece(10)]]
    assert [oct(path.stat().st_mode & 0o777) for path in (ledger.path, ledger.path.parent)] == ["0o600", "0o700"]
    ledger.close()


def test_two_crews_of_one_program_lose_nothing(tmp_path):
    first, second = RunDatabase(tmp_path / "runs.db"), RunDatabase(tmp_path / "runs.db")
    first.transact([partial(put_run, entry=RUN)])
    second.transact([read_runs])
    # The last one who closes the file takes its journal away: this one is not the last.
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(c.execute('SELECT run FROM runs').fetchall())"
    subprocess.run([sys.executable, "-c", look, str(first.path)], check=True, capture_output=True)
    first.transact([partial(put_run, entry=RUN._replace(run="later"))])
    told = subprocess.run([sys.executable, "-c", look, str(first.path)], check=True, capture_output=True, text=True)
    assert told.stdout == "[('later',), ('r',)]\n"
    first.close()
    second.close()


def test_link_is_refused(tmp_path):
    (tmp_path / "elsewhere.db").touch()
    (tmp_path / "runs.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(RecordError, match="it is a link; check the file"):
        RunDatabase(tmp_path / "runs.db").transact([read_runs])


def test_longer_piece_replaces_shorter(tmp_path):
    ledger = RunDatabase(tmp_path / "runs.db")
    ledger.transact([keep(piece(0))])
    ledger.transact([keep(piece(0, b"line\nmore\n"))])
    assert read(ledger)[1] == [piece(0, b"line\nmore\n")]
    ledger.close()


def test_late_end_spares_the_next_attempt(tmp_path):
    ledger = RunDatabase(tmp_path / "runs.db")
    again = RUN._replace(attempt=2, began=5)
    ledger.transact([partial(put_run, entry=RUN), keep(piece(0))])
    ledger.transact([partial(put_run, entry=again), keep(piece(5))])
    ledger.transact([partial(drop_run, session="s", run="r", attempt=1)])
    assert read(ledger) == [[again], [piece(5)]]
    ledger.transact([partial(drop_run, session="s", run="r", attempt=2)])
    assert read(ledger) == [[], []]
    ledger.close()


def test_what_is_gone_takes_no_room(tmp_path):
    ledger = RunDatabase(tmp_path / "runs.db")
    ledger.transact([partial(put_run, entry=RUN), *(keep(piece(place, bytes(100_000))) for place in range(50))])
    ledger.transact([partial(drop_run, session="s", run="r", attempt=1)])
    ledger.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 200_000


def test_newer_version_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(RecordError, match="has version 7, written by a newer retinue; this one knows version 1"):
        RunDatabase(tmp_path / "runs.db").transact([read_runs])


def test_held_file_is_told(tmp_path):
    ledger = RunDatabase(tmp_path / "runs.db", busy_s=0.05)
    ledger.transact([read_runs])
    with sqlite3.connect(tmp_path / "runs.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RecordError, match=r"another program has locked it for more than 0\.05 s"):
            ledger.transact([keep(piece(0))])
        other.execute("ROLLBACK")
    ledger.transact([keep(piece(0))])
    ledger.close()


@pytest.mark.parametrize("content", [b"x" * 9000, b"SQLite format 3\0" + bytes(5000)])
def test_damaged_file_is_told(tmp_path, content):
    (tmp_path / "runs.db").write_bytes(content)
    with pytest.raises(RecordError, match=r"it is damaged.*move it away"):
        RunDatabase(tmp_path / "runs.db").transact([read_runs])


def test_damage_while_open_is_told(tmp_path):
    ledger = RunDatabase(tmp_path / "runs.db")
    ledger.transact([partial(put_run, entry=RUN), *(keep(piece(place, bytes(5000))) for place in range(50))])
    ledger.close()
    data = bytearray(ledger.path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    ledger.path.write_bytes(data)
    with pytest.raises(RecordError, match="it is damaged"):
        read(ledger)


def test_unusable_place_is_told(tmp_path):
    (tmp_path / "runs.db").mkdir()
    with pytest.raises(RecordError, match=r"runs\.db: Is a directory; check the file, its folder"):
        RunDatabase(tmp_path / "runs.db").transact([read_runs])


def test_full_disk_is_told(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from retinue.durable.local.database import *; from retinue.durable.session_files import *\n"
        "put = lambda connection: put_pieces(connection, 's', 'r', [RecordPart('session', 'a', 0, bytes(3_000_000))])\n"
        "try: RunDatabase(Path(sys.argv[1])).transact([put])\n"
        "except RecordError as error: print(error)\n"
    )

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot record runs in {tmp_path}/runs.db: ") and "disk" in done.stdout


class Counting(RunDatabase):
    commits = 0

    def transact(self, acts):
        self.commits += 1
        return super().transact(acts)


async def test_steps_that_fall_together_are_one_commit(tmp_path):
    ledger = Counting(tmp_path / "runs.db")
    scribe = WriterThread(ledger)
    await scribe.write(partial(put_run, entry=RUN))
    async with asyncio.TaskGroup() as group:
        for place in range(200):
            group.create_task(scribe.write(keep(piece(place))))
    await scribe.close()
    assert ledger.commits < 40
    assert len(read(ledger)[1]) == 200
    ledger.close()


async def test_failed_write_reaches_who_waits(tmp_path):
    (tmp_path / "runs.db").write_bytes(b"x" * 9000)
    scribe = WriterThread(RunDatabase(tmp_path / "runs.db"))
    found = await asyncio.gather(*(scribe.write(keep(piece(0))) for _ in range(3)), return_exceptions=True)
    (tmp_path / "runs.db").unlink()
    await scribe.write(keep(piece(0)))
    await scribe.close()
    assert [type(error) for error in found] == [RecordError] * 3


async def test_closing_does_what_was_posted(tmp_path):
    scribe = WriterThread(RunDatabase(tmp_path / "runs.db"))
    await scribe.write(partial(put_run, entry=RUN))
    scribe.post(partial(drop_run, session="s", run="r", attempt=1), [tmp_path / "main.jsonl"], [tmp_path])
    await scribe.close()
    ledger = RunDatabase(tmp_path / "runs.db")
    assert read(ledger) == [[], []]
    ledger.close()


def test_processes_share_the_file(tmp_path):
    code = (
        "import sys; from pathlib import Path; from retinue.durable.local.database import *\n"
        "ledger = RunDatabase(Path(sys.argv[1]))\n"
        "for number in range(50):\n"
        "    ledger.transact([lambda c: put_run(c, RunRow(sys.argv[2], str(number), 1, 0, ''))])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    started = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [process.wait(50) for process in started] == [0, 0, 0]
    ledger = RunDatabase(tmp_path / "runs.db")
    assert len(read(ledger)[0]) == 150
    ledger.close()
