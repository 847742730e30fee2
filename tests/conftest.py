"""What holds for every test: no network beyond loopback, a home of its own, no keys, no local model server."""

import asyncio
import gc
import ipaddress
import itertools
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from retinue.testing import process
from tests import terminal
from tests.farm import Farm, open_yard
from tests.needs import explain_lack
from tests.postgres import Postgres, find_postgres, open_postgres
from tests.runners import PROGRAM, use_runner
from tests.standby import Standby, open_standby

_numbers = itertools.count(1)
_is_fresh = False
"""Whether the test that runs starts programs as a user does."""

# Examples that are thought up: a few with every run, many in `make soak`.
settings.register_profile("sample", max_examples=25, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("sample")

# Whoever starts the tests in the background lets them ignore interrupts, and so all the programs they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BOTH = (
    "/tests/surfaces/",
    "/test_manager.py",
    "/test_crew_verbs.py",
    "/test_crew_steering.py",
    "/test_crew_worktrees.py",
)
# How often a failed test is tried again, and how many reruns a whole run may have.
RERUNS, MOST_RERUNS = int(os.environ.get("RERUNS", "2")), 3
MEMORY, MEMORY_BYTES = "/dev/shm", 6 << 30
"""A file system in memory, and how much must be free there."""
KEPT = {"RETINUE_PI", "RETINUE_PI_DIR"}
FOREIGN = ("PI_", "RETINUE_", "XDG_", "GIT_", "NPM_CONFIG_", "OLLAMA_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")
SECRET = ("_API_KEY", "_AUTH_TOKEN", "_ACCESS_TOKEN", "_OAUTH_TOKEN")
PLAIN = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
PLAIN |= {name.upper() for name in PLAIN}


def is_local(host: object) -> bool:
    """Whether a host is this machine, without asking a name server."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host in ("", "localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).split("%")[0]).is_loopback
    except ValueError:
        return False


def guard(real: Callable[..., Any], address_of: Callable[..., object]) -> Callable[..., Any]:
    """The same function, refusing hosts that are not this machine."""

    def guarded(*arguments: Any, **named: Any) -> Any:
        address = address_of(*arguments, **named)
        host = address[0] if isinstance(address, tuple) else address
        unix = isinstance(arguments[0], socket.socket) and arguments[0].family == socket.AF_UNIX
        if not unix and not is_local(host):
            raise OSError(f"tests have no network: {host!r}")
        return real(*arguments, **named)

    return guarded


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guard(getattr(socket.socket, name), lambda _, address: address))
        patch.setattr(socket.socket, "sendto", guard(socket.socket.sendto, lambda *arguments: arguments[-1]))
        patch.setattr(socket, "getaddrinfo", guard(socket.getaddrinfo, lambda host, *_, **__: host))
        yield


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where most tests have their folders, which take a third of all time on a disk. KEEP=1 keeps them on it."""
    has_room = os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    # Landlock, which is used without bubblewrap, hides what is below /dev.
    if not has_room or explain_lack("bwrap") or os.environ.get("KEEP") == "1":
        yield tmp_path_factory.getbasetemp()
        return
    for left in Path(MEMORY).glob("retinue-tests-*"):  # by runs that were killed
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"retinue-tests-{os.getpid()}-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def root_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, memory: Path) -> Path:
    """The folder in which this test has its folders."""
    return tmp_path_factory.getbasetemp() if knows_sandbox(request.path) else memory


@cache
def knows_sandbox(test: Path) -> bool:
    return re.search("sandbox|landlock|bwrap|/dev/shm", test.read_text(), re.IGNORECASE) is not None


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, root_folder: Path) -> Path:
    """A folder for this test. Pytest's own looks through the folders of all earlier tests for a free number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = root_folder / f"{name}-{next(_numbers)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def home(root_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory; nothing of the person who runs the tests is seen by them."""
    for name in list(os.environ):
        if name not in KEPT and (name.startswith(FOREIGN) or name.endswith(SECRET) or name in PLAIN):
            monkeypatch.delenv(name)
    folder = root_folder / f"home{next(_numbers)}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(folder / ".pi" / "agent"))
    monkeypatch.setenv("RETINUE_NO_LOCAL", "1")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")  # for each program that a test starts, and what that starts
    return folder


@pytest.fixture(scope="session")
def standby() -> Iterator[Standby]:
    with open_standby() as opened:
        yield opened


@pytest.fixture(autouse=True, scope="session")
def quick_starts(standby: Standby) -> Iterator[None]:
    """Programs that a test starts have their imports already, unless it is marked `fresh`."""
    if os.environ.get("STANDBY") == "0" or not hasattr(os, "pidfd_open"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for module, quick in ((process, standby.start), (terminal, standby.start_there)):
            patch.setattr(module, "start", choose_start(module.start, quick))
        yield


def choose_start(usual: Callable[..., Any], quick: Callable[..., Any]) -> Callable[..., Any]:
    def start(*arguments: Any, **named: Any) -> Any:
        return (usual if _is_fresh else quick)(*arguments, **named)

    return start


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _is_fresh
    _is_fresh = item.get_closest_marker("fresh") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runner", default="", help="the runner of all crews that name none, durable or cluster")
    parser.addoption("--tables", type=Path, help="judge all attack cases and behaviours by this run; a folder for both")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Reruns())
    if (folder := config.getoption("--tables")) is not None:
        from scripts.tables import TABLES, Gate

        for table in TABLES:
            config.pluginmanager.register(Gate(table, folder))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of crews are run with both runners that work in this process, a sample of them on a worker, too."""
    test, place = metafunc.definition, metafunc.definition.path.as_posix()
    is_for_both = any(part in place for part in BOTH) and test.get_closest_marker("inprocess") is None
    if not metafunc.config.getoption("--runner") and is_for_both:
        others = ["cluster"] if test.get_closest_marker("everywhere") is not None else []
        metafunc.parametrize("crew_runner", ["inprocess", "durable", *others], indirect=True)


@pytest.fixture(autouse=True)
def crew_runner(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The runner of crews that name none."""
    name: str = getattr(request, "param", request.config.getoption("--runner")) or "inprocess"
    if name == "inprocess" or "/tests/unit/" in request.path.as_posix():
        yield "inprocess"
        return
    if request.node.get_closest_marker("inprocess") is not None:
        pytest.skip(f"pins what becomes of a run whose runner is inprocess, not {name}")
    if name == "cluster" and (here := request.node.get_closest_marker("here")) is not None:
        pytest.skip(f"only on one machine: {here.args[0]}")
    farm = request.getfixturevalue("farm") if name == "cluster" else None
    place = (farm.yard, farm.database) if farm is not None else ("", "")
    monkeypatch.setenv("RETINUE_BIN", shlex.join([sys.executable, str(PROGRAM), name, *place]))
    with use_runner(name, farm):
        yield name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of this process; each has its own database."""
    programs = find_postgres()
    if programs is None:
        missing = "no Postgres: install Debian's postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    # Not below pytest's own folder: the server is another user, who may not enter it.
    root = Path(tempfile.mkdtemp(prefix="retinue-postgres-"))
    try:
        with open_postgres(programs, root) as server:
            yield server
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def prepared(postgres: Postgres) -> str:
    """A database with all tables, to be copied: making them takes longer than most tests."""
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.dbos_queues import prepare_engine

    async def prepare(url: str) -> None:
        async with Database(url):
            await prepare_engine(url)

    url = postgres.make_database()
    asyncio.run(prepare(url))
    return url


@pytest.fixture(scope="session")
def yard(prepared: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where workers come from, for tests that know nothing of them."""
    with open_yard(tmp_path_factory.mktemp("farm"), prepared) as opened:
        yield opened


@pytest.fixture
def farm(yard: str, prepared: str) -> Iterator[Farm]:
    """The workers of this test: none before it sends a run."""
    opened = Farm(yard, f"{prepared.rpartition('/')[0]}/farm_{next(_numbers)}")
    yield opened
    opened.end()


@pytest.fixture
def agent_dir(home: Path) -> Path:
    """The agent directory of this test, made."""
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def measure(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Tells `make attack` what was found for one bar: `measure("SEC-1", "bwrap, root", changes=0)`."""

    def tell(bar: str, variant: str = "", **figures: float) -> None:
        record_property(bar, {"variant": variant, **figures})

    return tell


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects that all stay: the garbage collector looks at none of them, now or later.

    It looks as seldom as in the programs: a third of the time of the terminal UI's tests would else be its own.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Choose the samples of `make test`, then let failed tests be run again.

    Tests of real programs and timers may fail on a busy machine: such a test is tried again, and the summary names it.
    A test for an attack or a numbered behaviour is tried once: an attack that works one time in three works.
    """
    cases: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        marked = False
        for marker in ("attack", "spec"):
            if ids := list_ids(item, marker):
                # Reports carry them from the workers to whoever makes the tables.
                item.user_properties.append((marker, ids))
                marked = True
        if RERUNS and not marked and "/tests/unit/" not in item.path.as_posix():
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))
        if item.get_closest_marker("slow") is None:
            cases.setdefault((item.nodeid.partition("[")[0], find_runner(item)), []).append(item)
    for (_, runner), found in cases.items():
        sample = found[0].get_closest_marker("sample")
        # Where a run works matters less than what it does: one case of each test tells the difference.
        count = 1 if runner not in ("", "inprocess") else sample.args[0] if sample is not None else len(found)
        for item in list_unsampled(found, count):
            item.add_marker(pytest.mark.slow)


def list_ids(item: pytest.Item, marker: str) -> list[str]:
    return [id for mark in item.iter_markers(marker) for id in mark.args]


def find_runner(item: pytest.Item) -> str:
    """Which runner the cases of a test differ by, if they do."""
    call = getattr(item, "callspec", None)
    return str(call.params.get("crew_runner", "")) if call is not None else ""


def list_unsampled(cases: Sequence[pytest.Item], count: int) -> Iterator[pytest.Item]:
    """All but so many of the cases, evenly spread, and those for an attack or a behaviour that no other is for."""
    kept = {number * len(cases) // count for number in range(count)} if count < len(cases) else set(range(len(cases)))
    seen = {id for number in kept for marker in ("attack", "spec") for id in list_ids(cases[number], marker)}
    for number, item in enumerate(cases):
        ids = {id for marker in ("attack", "spec") for id in list_ids(item, marker)}
        if number not in kept and ids <= seen:
            yield item
        seen |= ids


class Reruns:
    """A pytest plugin: lists what was tried again, and fails the run when that was often."""

    def __init__(self) -> None:
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            self._tests.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self._tests) > MOST_RERUNS and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self._tests:
            terminalreporter.write_line(f"tried again: {test}")
        if len(self._tests) > MOST_RERUNS:
            terminalreporter.write_line(f"{len(self._tests)} reruns, more than {MOST_RERUNS}: find out why they failed")
