"""The promises of conftest.py: tests see no network and nothing of the person who runs them."""

import asyncio
import os
import socket
from pathlib import Path

import pytest


def test_foreign_hosts_are_refused() -> None:
    with socket.socket() as plain, pytest.raises(OSError, match="tests have no network"):
        plain.connect(("192.0.2.1", 80))
    with pytest.raises(OSError, match="tests have no network"):
        socket.getaddrinfo("example.com", 443)


async def test_foreign_hosts_are_refused_by_loop() -> None:
    with pytest.raises(OSError, match="tests have no network"):
        await asyncio.open_connection("192.0.2.1", 80)


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_home_is_empty(home: Path) -> None:
    assert (Path.home(), list(home.iterdir())) == (home, [])


def test_no_key_is_seen() -> None:
    assert [name for name in os.environ if name.endswith("_API_KEY")] == []
