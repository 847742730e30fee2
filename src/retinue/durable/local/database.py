"""SQLite database of durable runs on one machine, in the agent directory, shared by all processes.

Committed data survives a power cut. Must not know runs, models, tools or the event loop: one thread uses it.
"""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from retinue.core.errors import quote
from retinue.durable.session_files import RecordError, RecordPart
from retinue.sessions.files import make_private

VERSION = 1
BUSY_S = 5.0
"""How long to wait while another process holds the file."""
_WAL_BYTES = 4 << 20
_FREE_PAGES = 256
_TABLES = (
    "CREATE TABLE runs (session TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER NOT NULL, began INTEGER NOT NULL,"
    " main TEXT NOT NULL, PRIMARY KEY (session, run)) WITHOUT ROWID",
    "CREATE TABLE pieces (session TEXT NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL,"
    " place INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (session, run, kind, path, place))",
)
Act = Callable[[sqlite3.Connection], Any]
"""An operation within a transaction."""


class HeldError(RecordError):
    """Raised when another program locks the file for too long."""


class RunRow(NamedTuple):
    session: str
    """The id of its main session."""
    run: str
    attempt: int
    began: int
    """Size of the run's session file when this attempt began."""
    main: str
    """The file of the main session."""


class RunDatabase:
    """The database, opened on first use and reopened after a failure."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self.path = path
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None

    def transact(self, acts: Sequence[Act]) -> list[Any]:
        """Execute all operations or none; returns when they are on disk. Raises RecordError."""
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            results = [act(connection) for act in acts]
            connection.execute("COMMIT")
            return results
        except RecordError:
            self._drop()
            raise
        except (sqlite3.Error, OSError) as error:
            self._drop()
            raise RecordError(f"cannot record runs in {self.path}: {self._explain(error)}") from error

    def check(self) -> list[RunRow]:
        """Verify an existing file, including that it is writable, and return its runs; changes nothing.

        Raises RecordError.
        """
        try:
            _refuse_other(self.path)
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw", uri=True, timeout=self._busy_s, isolation_level=None
            )
            with closing(connection):
                version = self._read_version(connection)
                connection.execute("BEGIN IMMEDIATE")
                said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if said != "ok":
                    raise RecordError(f"cannot record runs in {self.path}: {_damage(str(said))}")
                found = read_runs(connection) if version else []
                connection.execute("ROLLBACK")
                return found
        except (sqlite3.Error, OSError) as error:
            kind = HeldError if _is_busy(error) else RecordError
            raise kind(f"cannot record runs in {self.path}: {self._explain(error)}") from error

    def close(self) -> None:
        """Free unused space and close."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._shrink(self._connection)
            self._drop()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private(self.path.parent)
            _make_file(self.path)
            connection = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, cached_statements=16)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # effective for a new file only
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if self._read_version(connection) == 0:
            connection.execute("BEGIN IMMEDIATE")
            if self._read_version(connection) == 0:  # else another process was faster
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        self._shrink(connection)

    def _read_version(self, connection: sqlite3.Connection) -> int:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise RecordError(
                f"cannot record runs in {self.path}: it has version {version}, written by a newer retinue; "
                f"this one knows version {VERSION}. Use the newer one, or move the file away"
            )
        return version

    def _shrink(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA freelist_count").fetchone()[0] > _FREE_PAGES:
            # `execute` would free only one page.
            connection.executescript("PRAGMA incremental_vacuum")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _explain(self, error: sqlite3.Error | OSError) -> str:
        if isinstance(error, OSError):
            return f"{error.strerror or error}; check the file, its folder and their rights"
        name = str(getattr(error, "sqlite_errorname", ""))
        said = quote(str(error), 200)
        if _is_busy(error):
            return f"another program has locked it for more than {self._busy_s:g} s; end that program, or try again"
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return _damage(str(error))
        if name.startswith("SQLITE_FULL"):
            return "the disk is full; free some space, and resume the run"
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return f"it cannot be written ({said}); check the rights of the file and of its folder"
        return f"{said}; check the disk, or move the file away"


def _is_busy(error: Exception) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _damage(said: str) -> str:
    return f"it is damaged ({quote(said, 200)}); move it away, and resume unfinished runs by hand"


def _refuse_other(path: Path) -> None:
    """Raise OSError for a path that cannot be the database."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link")
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))


def _make_file(path: Path) -> None:
    """Create the file if it is missing, private from the start; SQLite gives its other files the same mode.

    An existing file must not be opened here: closing it would drop the locks of all connections of this process, and
    another process would then believe to be the last user and delete files that are still in use.
    """
    _refuse_other(path)
    if path.exists():
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    with suppress(FileExistsError):  # another process was faster
        try:
            os.link(name, path)
        except PermissionError:  # the file system has no hard links
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        finally:
            os.unlink(name)


def put_run(connection: sqlite3.Connection, entry: RunRow) -> None:
    """Record that a run begins, and delete what an earlier attempt has left."""
    connection.execute("DELETE FROM pieces WHERE session = ? AND run = ?", (entry.session, entry.run))
    connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", entry)


def put_pieces(connection: sqlite3.Connection, session: str, run: str, pieces: Iterable[RecordPart]) -> None:
    """Store parts of a run; a shorter version of a part is replaced."""
    connection.executemany(
        "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?, ?, ?)",
        [(session, run, piece.kind, piece.path, piece.place, piece.data) for piece in pieces],
    )


def drop_run(connection: sqlite3.Connection, session: str, run: str, attempt: int) -> None:
    """Delete an attempt whose end is on disk, unless a later attempt has begun."""
    key = (session, run, attempt)
    found = connection.execute("DELETE FROM runs WHERE session = ? AND run = ? AND attempt = ?", key)
    if found.rowcount:
        connection.execute("DELETE FROM pieces WHERE session = ? AND run = ?", key[:2])


def read_runs(connection: sqlite3.Connection) -> list[RunRow]:
    """Return the recorded runs of all sessions."""
    return [RunRow(*row) for row in connection.execute("SELECT session, run, attempt, began, main FROM runs")]


def read_pieces(connection: sqlite3.Connection, session: str, run: str) -> list[RecordPart]:
    rows = connection.execute(
        "SELECT kind, path, place, data FROM pieces WHERE session = ? AND run = ? ORDER BY kind, path, place",
        (session, run),
    )
    return [RecordPart(kind, path, place, bytes(data)) for kind, path, place, data in rows]
