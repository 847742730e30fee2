import os
import socket
from pathlib import Path

import pytest

from retinue.core.errors import ConfigError
from retinue.core.launch import Territory
from retinue.settings.files import FileBound, load_json, read_bounded
from retinue.tools.paths import find_real_path


def test_missing_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    assert read_bounded(tmp_path / "no") is None
    assert read_bounded(tmp_path / "plain" / "below") is None


def test_read_stops_after_limit(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100)
    assert read_bounded(tmp_path / "big", 10) == b"x" * 11


@pytest.mark.parametrize("kind", ["directory", "named pipe", "socket", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("x")
    else:
        path = Path("/dev/zero")
    with pytest.raises(ConfigError, match=f"is a {kind}; expected a regular file"):
        read_bounded(path)


def test_link_circle_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ConfigError, match="form a loop"):
        read_bounded(tmp_path / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{}")
    (tmp_path / "a").chmod(0)
    value, diagnostics = load_json(tmp_path / "a")
    assert (value, [item.message for item in diagnostics]) == (
        None,
        [f"{tmp_path / 'a'}: cannot be read: permission denied"],
    )


def test_broken_json_disables_only_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a": 1,}')
    value, [problem] = load_json(tmp_path / "a")
    assert (value, problem.line, problem.code) == (None, 1, "json")


@pytest.mark.attack("I2")
def test_file_that_is_swapped_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    secret.write_text("key")
    (root / "a").write_text("mine")
    real_open = os.open

    def swap(path: Path, flags: int) -> int:
        path.unlink()
        path.symlink_to(secret)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(ConfigError, match=r"leads to .*secret, outside "):
        read_bounded(root / "a", 10, FileBound(str(root), Territory()))


@pytest.mark.attack("I2")
def test_replaced_secret_stays_hidden(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    handle = os.open(tmp_path / "secret", os.O_RDONLY)
    os.unlink(tmp_path / "secret")
    try:
        assert find_real_path(handle, "") == str(tmp_path / "secret")
    finally:
        os.close(handle)
