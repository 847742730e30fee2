import json
import subprocess

import psycopg
import pytest

from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)


def check(world):
    env = {"RETINUE_DATABASE": world.database}
    done = run_cli(("doctor", "--json"), world.project, env, home=world.agent_dir.parent.parent)
    items = json.loads(done.stdout)["items"]
    return done.status, [
        (item["status"], item["message"], item["details"]) for item in items if item["category"] == "cluster"
    ]


@pytest.fixture
def looker(world):
    owner = world.database
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("CREATE ROLE looker LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA retinue, dbos TO looker")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA retinue, dbos TO looker")
        world.database = owner.replace("retinue@", "looker@")
        yield connection
        connection.execute("DROP OWNED BY looker")
        connection.execute("DROP ROLE looker")


def test_role_that_only_reads_fails(world, looker):
    status, [_, (state, message, details), *_] = check(world)
    lacks = "role 'looker' lacks insert update delete on dbos.workflow_status, insert update delete on retinue.cases, "
    assert (status, state, message) == (1, "fail", "The cluster's database cannot be written")
    assert details.startswith(lacks) and " more; connect as the role that owns the tables" in details


def test_role_with_rights_passes(world, looker):
    looker.execute("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA retinue, dbos TO looker")
    looker.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA retinue TO looker")
    owner = world.database.replace("looker@", "retinue@")
    dump = ["pg_dump", "--exclude-schema=public", owner]
    before = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    _, items = check(world)
    after = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    assert [item[1] for item in items if item[0] == "fail"] == []
    assert _drop_keys(before) == _drop_keys(after)


def _drop_keys(dump):
    """Newer programs put a word of their own into each dump."""
    return [line for line in dump.splitlines() if not line.startswith("\\")]


def test_readonly_transactions_fail(world, looker):
    looker.execute("ALTER ROLE looker SET default_transaction_read_only = on")
    _, [_, (state, message, details), *_] = check(world)
    told = "transactions of role 'looker' are read-only; runs need a writable database"
    assert (state, message, told in details) == ("fail", "The cluster's database cannot be written", True)


def test_empty_database_may_not_be_filled(world, looker, postgres):
    world.database = postgres.make_database().replace("retinue@", "looker@")
    _, [(state, message, details), *rest] = check(world)
    assert (state, "is empty" in message, rest) == ("warn", True, [])
    assert "role 'looker' may not create tables; make it the owner of the database" in details
