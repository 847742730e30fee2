import json
import socket

import pytest

pytestmark = pytest.mark.here("the switch names a database that is made with the first run")

SECRET = "geheim-7f3a91"
COMMANDS = [("worker",), ("cluster", "status"), ("cluster", "prune", "--days", "3")]


@pytest.fixture
def refused():
    """The address of a database that nobody serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"postgresql://user:{SECRET}@127.0.0.1:{probe.getsockname()[1]}/name"


def of_cluster(done):
    items = json.loads(done.stdout)["items"]
    return [(item["status"], item["message"], item["details"]) for item in items if item["category"] == "cluster"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_no_database_is_told(place, command):
    done = place.run(*command)
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "retinue: no database is named: give --database postgresql://USER@HOST/NAME, set RETINUE_DATABASE, "
        f"or set cluster.database in {place.agent_dir}/subagents.json\n"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "flags",
    [
        ("worker", "--slots", "0"),
        ("worker", "--slots", "many"),
        ("worker", "--total", "1e3"),
        ("worker", "--drain", "-1"),
        ("worker", "--drain", "\u0661"),
        ("worker", "--slots", "9" * 5000),
        ("cluster", "prune", "--days", "0"),
    ],
    ids=lambda flags: flags[-1][:8],
)
def test_bad_numbers_are_told(place, flags):
    done = place.run(*flags)
    assert (done.status, f"{flags[-2]} must be a whole number from" in done.stderr) == (2, True)
    assert len(done.stderr) < 300


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cluster", "frob"), "unknown action 'frob'; use retinue cluster status, fetch RUN or prune"),
        (("cluster", "prune"), "needs --days N"),
        (("cluster", "status", "--days", "3"), "--days works only with retinue cluster prune"),
        (("worker", "now"), "takes no argument 'now'"),
        (("worker", "--database", " "), "--database needs a value"),
    ],
)
def test_bad_words_are_told(place, words, told):
    done = place.run(*words)
    assert (done.status, done.stdout, told in done.stderr) == (2, "", True)


ADDRESSES = [
    SECRET,
    f"postgresql://user:{SECRET}%zz@host/name",
    f"mysql://user:{SECRET}@host/name",
    f"postgresql://user:{SECRET}/more@host/name",
    f"postgresql://user:12/{SECRET}@host/name",
    f"postgresql://user:{SECRET}@host:port/name",
    f"host=127.0.0.1 password={SECRET}",
]
WRONG = [
    # All read it with the same words: two of the addresses are enough for the others.
    pytest.param(command, address, marks=() if command == ("worker",) or number < 2 else pytest.mark.slow)
    for command in (("worker",), ("cluster", "status"), ("doctor",))
    for number, address in enumerate(ADDRESSES)
]


@pytest.mark.sample(7)
@pytest.mark.parametrize(("command", "address"), WRONG)
def test_wrong_address_stays_unseen(place, command, address):
    done = place.run(*command, env={"RETINUE_DATABASE": address})
    assert (done.status, SECRET in done.stdout + done.stderr) == (1 if command == ("doctor",) else 2, False)
    assert "expected postgresql://USER:PASSWORD@HOST:PORT/NAME" in done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_refused_connection_is_told(place, command, refused):
    done = place.run(*command, "--database", refused)
    assert (done.status, SECRET in done.stderr, done.stdout) == (2, False, "")
    assert "cannot be used: " in done.stderr
    assert "Connection refused" in done.stderr
    assert "check --database, RETINUE_DATABASE, or cluster.database" in done.stderr


def test_database_comes_from_user_file(place, refused):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"cluster": {"database": refused}}))
    told = place.run("worker")
    (status, message, details) = of_cluster(place.run("doctor", "--json"))[0]
    assert (told.status, "Connection refused" in told.stderr) == (2, True)
    assert (status, message, SECRET in details) == ("fail", "The cluster's database cannot be used", False)


def test_project_names_no_database(place, refused):
    (place.work / ".pi").mkdir()
    (place.work / ".pi" / "subagents.json").write_text(json.dumps({"cluster": {"database": refused}}))
    told = place.run("worker", "--approve")
    assert (told.status, "no database is named" in told.stderr) == (2, True)
    assert of_cluster(place.run("doctor", "--json", "--approve")) == []


def test_doctor_keeps_quiet_without_database(place):
    assert of_cluster(place.run("doctor", "--json")) == []


def test_runner_without_database_is_told(place):
    (place.agent_dir / "subagents.json").write_text('{"runner": "cluster"}')
    [(status, message, details)] = of_cluster(place.run("doctor", "--json"))
    assert (status, message) == ("warn", "No database for runs on other machines")
    assert details.startswith(f"{place.agent_dir}/subagents.json: runner is cluster: set cluster.database there")


@pytest.mark.parametrize("missing", ["psycopg", "dbos"])
def test_missing_extra_has_remedy(place, refused, missing):
    broken = place.root / "broken"
    broken.mkdir()
    (broken / f"{missing}.py").write_text(f"raise ImportError('no {missing} here')\n")
    env = {"PYTHONPATH": str(broken), "RETINUE_DATABASE": refused}
    items = of_cluster(place.run("doctor", "--json", env=env))
    assert [item[:2] for item in items] == [("fail", "The extra for clusters is not installed")]
    assert "pip install 'retinue[cluster]'" in items[0][2]
    if missing == "psycopg":
        told = place.run("worker", env=env)
        assert (told.status, "pip install 'retinue[cluster]'" in told.stderr) == (2, True)
