import os
import shlex
import sys
from pathlib import Path

import pytest

from retinue.testing import CliResult, fresh_home, open_cli, run_cli

SHOW = "import os, sys, json; print(json.dumps([sys.argv[1:], sys.stdin.read(), dict(os.environ)]))"


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETINUE_BIN", shlex.join([sys.executable, "-c", SHOW]))


def test_command_sees_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    home = fresh_home(tmp_path, {"providers": {}})
    result = run_cli(["-p", "ä"], tmp_path, {"EXTRA": "1"}, "input", home=home)
    ((arguments, stdin, environment),) = result.lines
    assert (result.status, result.stderr, arguments, stdin) == (0, "", ["-p", "ä"], "input")
    assert environment.items() >= {"HOME": str(home), "PI_CODING_AGENT_DIR": f"{home}/.pi/agent", "EXTRA": "1"}.items()
    assert not any(name.endswith("_KEY") for name in environment)
    assert (home / ".pi/agent/models.json").read_bytes() == b'{"providers":{}}'


def test_default_home_is_removed() -> None:
    ((_, _, environment),) = run_cli([]).lines
    assert environment["HOME"] != os.environ["HOME"] and not Path(environment["HOME"]).exists()


def test_status_and_streams_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os; os.write(2, b'no'); os.write(1, b'yes'); os.kill(os.getpid(), 9)"
    monkeypatch.setenv("RETINUE_BIN", shlex.join([sys.executable, "-c", program]))
    assert run_cli([]) == CliResult(-9, "yes", "no")


def test_open_command_ends_with_test(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    monkeypatch.setenv("RETINUE_BIN", shlex.join([sys.executable, "-c", program]))
    with open_cli([]) as process:
        assert process.stdout and process.stdout.readline() == b"up\n"
    assert process.returncode == -9
