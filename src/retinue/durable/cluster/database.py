"""Connections to the shared Postgres, and encoding of JSON columns.

If the database is away or refuses for a fixable reason, each query waits until it succeeds, and a `TroubleNotifier`
tells the user. Must not know tables beyond their version.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from retinue.core.errors import ConfigError, RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.durable.cluster.schema import STEPS, VERSION
from retinue.durable.trouble import REMEDIES, RIGHTS, TroubleNotifier, first_line, recognise
from retinue.models.convert import clean_all, clean_text

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    Connection = AsyncConnection[TupleRow]
    Upgrade = Callable[[Connection, int, str], Awaitable[None]]
    """Migrates tables of an older version, given the database's display name. Raises RetinueError."""

MAX_CONNECTIONS = 4
CONNECT_S = 10
RETRY_S = 0.5
IDLE_MS = 5_000
SCHEMES = ("postgresql", "postgres")
MIGRATION_LOCK = 0x72657469
"""Advisory lock: only one program at a time creates the tables."""
_HAS_TABLES = "SELECT to_regclass('retinue.meta') IS NOT NULL"
_STARTING = "the database system is "
"""Beginning of the message of a server that is not ready, as in `starting up`."""
_SAME = "install the same version of retinue everywhere, or give this one its own database"
_NEWER = "start a worker of this version to upgrade them"
Value = TypeVar("Value")


class DatabaseAway(RetinueError):
    """Raised when the database cannot be reached and the caller does not want to wait."""


class NoTables(ConfigError):
    """Raised when a database that is only inspected has never been used by a cluster."""


def import_driver() -> Any:
    """Import the driver. Raises ConfigError if the extra is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("runs on other machines need the extra: pip install 'retinue[cluster]'") from error
    return psycopg


class Database:
    """One shared database. An async context manager; entering checks the address and the tables."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "retinue",
        wait_limit_s: float | None = None,
        creates: bool = True,
        upgrade: "Upgrade | None" = None,
        alarm: TroubleNotifier | None = None,
    ) -> None:
        """`wait_limit_s`: how long a query waits for a database that is away; None for ever, with an `alarm`.

        `creates`: whether missing tables are created. Without `upgrade` older tables are refused.
        """
        self.url = url
        self.alarm = alarm or TroubleNotifier()
        self.waits_for_rights = False
        """Whether missing rights are waited for; set by processes that execute runs of others."""
        self._name = name
        self._wait_limit_s = wait_limit_s
        self._creates = creates
        self._upgrade = upgrade
        self._psycopg = import_driver()
        self._idle: list[Connection] = []
        self._is_closed = False
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def __aenter__(self) -> Self:
        self._is_closed = False
        await self._check()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()

    async def fetch(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, repeated if the connection breaks; so running it twice must be harmless."""

        async def ask(connection: "Connection") -> list[tuple[Any, ...]]:
            # With autocommit one statement is a transaction, without two more round trips.
            cursor = await connection.execute(sql, values)
            return await cursor.fetchall() if cursor.description else []

        return await self._run(ask)

    async def transact(self, work: "Callable[[Connection], Awaitable[Value]]") -> Value:
        """Run a function in one transaction, restarted if the connection breaks."""

        async def ask(connection: "Connection") -> Value:
            async with connection.transaction():
                return await work(connection)

        return await self._run(ask)

    async def _run(self, work: "Callable[[Connection], Awaitable[Value]]") -> Value:
        """Run a function on a connection, waiting while the database cannot execute it."""

        async def attempt() -> Value:
            async with self._borrow() as connection:
                return await work(connection)

        try:
            return await self._retry(attempt, self._passing, self._judge)
        except self._psycopg.errors.RaiseException as error:  # raised only by our own table triggers
            told = first_line(error.diag.message_primary or error)
            raise ConfigError(f"the database {self.describe()}: {told}; {_SAME}") from error

    async def _retry(
        self,
        attempt: Callable[[], Awaitable[Value]],
        passing: tuple[type[Exception], ...],
        judge: Callable[[object, Exception, float], None],
    ) -> Value:
        """Repeat an attempt until it succeeds, or until `judge` raises for an error after this time of waiting."""
        waited_s = 0.0
        who = object()
        try:
            while True:
                try:
                    return await attempt()
                except passing as error:
                    judge(who, error, waited_s)
                await asyncio.sleep(RETRY_S)
                waited_s += RETRY_S
        finally:
            self.alarm.clear(who)

    def _judge(self, who: object, error: BaseException, waited_s: float) -> None:
        """Report what is waited for. Raises RetinueError if the caller does not want to wait any longer."""
        trouble = recognise(error, f"the database {self.describe()}")
        if trouble.kind == RIGHTS and not self.waits_for_rights:
            raise ConfigError(f"the database {self.describe()}: {first_line(error)}; {REMEDIES[RIGHTS]}") from error
        if self._wait_limit_s is not None and waited_s >= self._wait_limit_s:
            raise DatabaseAway(trouble.text) from error
        self.alarm.note(who, recognise(error, self.alarm.subject))

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """All errors of a query or connection."""
        return (self._psycopg.Error, OSError)

    @property
    def _passing(self) -> tuple[type[Exception], ...]:
        """Errors that may disappear, by themselves or because someone fixes the cause."""
        errors = self._psycopg.errors
        return (
            self._psycopg.OperationalError,
            OSError,
            errors.InsufficientPrivilege,
            errors.ReadOnlySqlTransaction,
            errors.IdleInTransactionSessionTimeout,
            errors.InFailedSqlTransaction,
        )

    async def connect(self) -> "Connection":
        """Open a separate connection, for locks and for listening; the caller closes it."""
        connection: Connection = await self._psycopg.AsyncConnection.connect(
            self.url,
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name=self._name,
            # A process that stalls inside a transaction must not block the others.
            options=f"-c idle_in_transaction_session_timeout={IDLE_MS} -c retinue.version={VERSION}",
        )
        return connection

    async def await_room(self, count: int) -> None:
        """Return when `count` more connections are available, for libraries that cannot report that they wait."""
        made: list[Connection] = []
        try:
            while len(made) < count:
                made.append(await self._retry(self.connect, self._passing, self._judge))
        finally:
            for connection in made:
                await connection.close()

    async def listen(
        self, channel: str, who: object, take: Callable[[Sequence[str]], Awaitable[None]], pause_s: float
    ) -> None:
        """Pass on notifications for ever; also an empty list at the start and each `pause_s`, since some may be lost.

        `who` is the waiter that the alarm shows while the database is away.
        """
        while True:
            try:
                connection = await self.connect()
                try:
                    await connection.execute(f"LISTEN {channel}")
                    self.alarm.clear(who)
                    told: list[str] = []
                    while True:
                        await take(told)
                        told = [notice.payload async for notice in connection.notifies(timeout=pause_s, stop_after=1)]
                finally:
                    await connection.close()
            except self.errors as error:
                await asyncio.sleep(pause_s)
                self.alarm.note(who, recognise(error, self.alarm.subject))
                await take([])  # no notifications arrive now, so poll

    async def find_lacks(self) -> list[str]:
        """Return why this role cannot store runs here; empty if it can or if the database cannot be reached."""
        try:
            connection = await self.connect()
        except (self._psycopg.Error, OSError, ValueError):
            return []
        try:
            return await find_lacks(connection)
        except self._psycopg.Error as error:
            return [f"cannot find out what this role may do: {first_line(error)}"]
        finally:
            await connection.close()

    def describe(self) -> str:
        """Return the address without a password."""
        return describe_address(self.url)

    @asynccontextmanager
    async def _borrow(self) -> "AsyncIterator[Connection]":
        async with self._room:
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                yield connection
            except BaseException:
                # The state of the connection is unknown.
                await connection.close()
                raise
            if self._is_closed:
                await connection.close()  # a query that outlived the close
            elif not connection.closed:
                self._idle.append(connection)

    async def _check(self) -> None:
        """Create missing tables, upgrade older ones if wanted, refuse any others."""
        check_address(self.url)
        connection = await self._reach()
        try:
            await connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            if not await fetch_value(connection, _HAS_TABLES):
                if not self._creates:
                    raise NoTables(f"the database {self.describe()} has no tables yet: the first worker creates them")
                async with connection.transaction():
                    for step in STEPS:
                        await connection.execute(step)
                    await connection.execute("INSERT INTO retinue.meta VALUES (%s)", (VERSION,))
            found = await fetch_value(connection, "SELECT version FROM retinue.meta") or 0
            if self._upgrade is not None and 0 < found < VERSION:
                await self._upgrade(connection, found, self.describe())
            elif found != VERSION:
                raise ConfigError(
                    f"the database {self.describe()} has tables of version {found}, "
                    f"this program knows {VERSION}; {_NEWER if 0 < found < VERSION else _SAME}"
                )
        except self._psycopg.errors.InsufficientPrivilege as error:
            raise ConfigError(f"the database {self.describe()}: {first_line(error)}; {REMEDIES[RIGHTS]}") from error
        except self._psycopg.Error as error:
            raise ConfigError(recognise(error, f"the database {self.describe()}").text) from error
        finally:
            await connection.close()

    async def _reach(self) -> "Connection":
        """Open the first connection. A wrong address is an error; a server that is starting is waited for."""
        return await self._retry(self.connect, (*self.errors, ValueError), self._refuse)

    def _refuse(self, who: object, error: BaseException, waited_s: float) -> None:
        trouble = recognise(error, f"the database {self.describe()}")
        is_there = trouble.kind != "away" or _STARTING in trouble.text
        if is_there and self._wait_limit_s is None:
            self.alarm.note(who, recognise(error, self.alarm.subject))
            return
        if is_there:
            raise ConfigError(trouble.text) from error
        raise ConfigError(
            f"the database {self.describe()} cannot be used: {first_line(error)}; "
            "check --database, RETINUE_DATABASE, or cluster.database in the user's subagents.json"
        ) from error


async def fetch_value(connection: "Connection", sql: str, *values: Any) -> Any:
    """Return the first column of the first row; None without a row."""
    cursor = await connection.execute(sql, values)
    row = await cursor.fetchone()
    return None if row is None else row[0]


def check_address(url: str) -> None:
    """Raise ConfigError unless this is a Postgres address. Never shows it: it may contain a password."""
    psycopg = import_driver()
    try:
        parts = urlsplit(url)
        # Unescaped characters of a password end the host too early; the rest would be taken for a path.
        is_plain = parts.scheme in SCHEMES and (parts.port or 1) > 0 and "@" not in parts.path and " " not in url
        psycopg.conninfo.conninfo_to_dict(url)
    except (ValueError, psycopg.Error):
        is_plain = False
    if not is_plain:
        raise ConfigError(
            "the address of the database is not valid; expected postgresql://USER:PASSWORD@HOST:PORT/NAME, with "
            "/ @ : % in a password written as %2F %40 %3A %25"
        )


def describe_address(url: str) -> str:
    """Return an address without its password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(not an address)"
    if parts.scheme not in SCHEMES or "@" in parts.path:
        return "(not an address)"
    return quote(f"{parts.hostname or ''}{port}{parts.path}", 200)


Column = TypeVar("Column")

_MARK = "\ufffe"
"""A noncharacter, so that texts hardly ever contain it and need escaping."""
_NUL = late_pattern(r"(?<!\\)((?:\\\\)*)\\u0000")
_MARKED = late_pattern(f"{_MARK}(.)")


def pack_json(value: Any) -> str:
    """Encode a value for a JSON column, escaping NUL, which Postgres rejects."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(clean_all(msgspec.to_builtins(value))).decode()
    text = text.replace(_MARK, _MARK + "m")
    return _NUL.sub(rf"\1{_MARK}0", text) if r"\u0000" in text else text


def unpack_json(text: str, kind: type[Column]) -> Column:
    """Decode a value. Raises msgspec.DecodeError."""
    if _MARK in text:
        text = _MARKED.sub(lambda found: r"\u0000" if found[1] == "0" else _MARK, text)
    return msgspec.json.decode(text, type=kind)


def to_column(text: str) -> str:
    return clean_text(text).replace("\0", "\ufffd")


MOST_NAMED = 5
_STATE = """
SELECT current_user::text, pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    has_database_privilege(current_database(), 'CREATE')
"""
_TABLES = """
SELECT c.oid::regclass::text, array_agg(lower(p.name) ORDER BY p.number)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES (1, 'SELECT'), (2, 'INSERT'), (3, 'UPDATE'), (4, 'DELETE')) p (number, name)
WHERE c.relkind IN ('r', 'p') AND (n.nspname = 'retinue' AND NOT (c.relname = 'meta' AND p.number > 1)
    OR n.nspname = 'dbos' AND c.relname = 'workflow_status') AND NOT has_table_privilege(c.oid, p.name)
GROUP BY c.oid UNION ALL
SELECT c.oid::regclass::text, ARRAY['usage'] FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'retinue' AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END ORDER BY 1
"""
_WRITABLE = "runs need a writable database: name the primary, or remove default_transaction_read_only from it"


async def find_lacks(connection: "Connection") -> list[str]:
    """Return why this connection cannot send or execute runs, each with what to do; empty if it can."""
    cursor = await connection.execute(_STATE)
    role, is_standby, is_readonly, can_create = await cursor.fetchone() or ("", False, False, True)
    if is_standby:
        return [f"it is a standby; {_WRITABLE}"]
    lacks = [f"transactions of role {quote(role, 80)} are read-only; {_WRITABLE}"] if is_readonly else []
    if not await fetch_value(connection, _HAS_TABLES):
        make = f"role {quote(role, 80)} may not create tables; make it the owner of the database, or grant it CREATE"
        return [*lacks, *([] if can_create else [make])]
    cursor = await connection.execute(_TABLES)
    missing = [f"{' '.join(rights)} on {table}" for table, rights in await cursor.fetchall()]
    if missing:
        more = len(missing) - MOST_NAMED
        named = ", ".join(missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        lacks.append(f"role {quote(role, 80)} lacks {named}; {REMEDIES[RIGHTS]}")
    return lacks
