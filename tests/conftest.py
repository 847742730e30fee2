"""What holds for every test: no network beyond loopback, a home of its own, no keys, no local model server."""

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Whoever starts the tests in the background lets them ignore interrupts, and so all the programs they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

KEPT = {"RETINUE_PI", "RETINUE_PI_DIR"}
FOREIGN = ("PI_", "RETINUE_", "XDG_", "GIT_", "NPM_CONFIG_", "OLLAMA_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")
SECRET = ("_API_KEY", "_AUTH_TOKEN", "_ACCESS_TOKEN", "_OAUTH_TOKEN")
PLAIN = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}


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


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory; nothing of the person who runs the tests is seen by them."""
    for name in list(os.environ):
        if name not in KEPT and (name.startswith(FOREIGN) or name.endswith(SECRET) or name in PLAIN | upper(PLAIN)):
            monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(folder / ".pi" / "agent"))
    monkeypatch.setenv("RETINUE_NO_LOCAL", "1")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("TERM", "dumb")
    return folder


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


def upper(names: set[str]) -> set[str]:
    """The same names in capitals, as some programs want them."""
    return {name.upper() for name in names}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real programs and timers on a busy machine: such a test is tried twice more, and the summary counts it."""
    for item in items:
        if "/tests/unit/" not in item.path.as_posix() and os.environ.get("RERUNS") != "0":
            item.add_marker(pytest.mark.flaky(reruns=2))
