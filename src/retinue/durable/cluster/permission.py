"""What a role may do in the database, found out by asking: nothing is tried, and nothing is left behind."""

from typing import TYPE_CHECKING

from retinue.core.errors import quote

if TYPE_CHECKING:
    from retinue.durable.cluster.database import Connection

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
_OWNER = "connect as the role that owns them, or let that one give this role its rights"
_WRITABLE = "runs need one that can be written: name the primary, or take default_transaction_read_only from it"


async def find_lacks(connection: "Connection") -> list[str]:
    """Why this connection cannot send runs or work on them, each with what to do; nothing when it can."""
    cursor = await connection.execute(_STATE)
    role, is_standby, is_readonly, can_create = await cursor.fetchone() or ("", False, False, True)
    if is_standby:
        return [f"it is a standby; {_WRITABLE}"]
    lacks = [f"transactions of role {quote(role, 80)} can only read; {_WRITABLE}"] if is_readonly else []
    cursor = await connection.execute("SELECT to_regclass('retinue.meta') IS NOT NULL")
    row = await cursor.fetchone()
    if row is None or not row[0]:
        make = f"role {quote(role, 80)} may not make the tables; let it own the database, or give it CREATE there"
        return [*lacks, *([] if can_create else [make])]
    cursor = await connection.execute(_TABLES)
    missing = [f"{' '.join(rights)} on {table}" for table, rights in await cursor.fetchall()]
    if missing:
        more = len(missing) - MOST_NAMED
        named = ", ".join(missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        lacks.append(f"role {quote(role, 80)} lacks {named}; {_OWNER}")
    return lacks
