"""The promise of standby.py: a program that is forked is the one that a user starts."""

import signal
import subprocess
from pathlib import Path

import pytest

from retinue.testing import CliResult, process
from retinue.testing.process import fresh_home, open_cli, run_cli
from tests.standby import Forked

SHOW = (
    "env | grep -v SESSION_ID | sort; ulimit -a; grep -E 'Sig|Cap' /proc/self/status; umask; pwd -P; ls /proc/self/fd"
)
REPLIES = '{"replies": [{"calls": [{"name": "bash", "arguments": {"command": "%s"}}]}, {"text": "done"}]}'


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.fresh)])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_both(args: list[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> list[CliResult]:
    home = fresh_home(place)
    forked = run_cli(args, place, home=home)
    monkeypatch.setattr(process, "start", subprocess.Popen)
    return [forked, run_cli(args, place, home=home)]


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["--nonsense"], ["doctor"], ["-p"]], ids=" ".join)
def test_forked_program_says_the_same(args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked, started = run_both(args, tmp_path, monkeypatch)
    assert forked == started


def test_forked_program_has_same_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.json").write_text(REPLIES % SHOW)
    args = ["--mode", "json", "-p", "go", "--model", f"scripted/{tmp_path}/script.json", "--no-session"]
    forked, started = (
        next(record for record in result.lines if record["type"] == "tool_execution_end")["result"]
        for result in run_both(args, tmp_path, monkeypatch)
    )
    assert forked == started


def test_signals_end_both_alike(way: str, tmp_path: Path) -> None:
    with open_cli(["--mode", "rpc", "--model", "offline/rules"], tmp_path, has_stdin=True) as running:
        assert running.stdin and running.stdout
        running.stdin.write(b'{"type": "get_state"}\n')
        running.stdin.flush()
        assert running.stdout.readline()
        assert (isinstance(running, Forked), running.poll()) == (way == "forked", None)
        running.send_signal(signal.SIGKILL)
        assert running.wait(10) == -signal.SIGKILL
    assert not Path(f"/proc/{running.pid}").exists()


def test_told_interpreter_is_started() -> None:
    assert run_cli(["--version"]).stderr == ""
    assert "import 'retinue.cli'" in run_cli(["--version"], env={"PYTHONVERBOSE": "1"}).stderr


def test_program_that_hangs_is_ended(tmp_path: Path) -> None:
    args = ["--mode", "rpc", "--model", "offline/rules"]
    with (
        open_cli(args, tmp_path, has_stdin=True) as running,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        running.wait(0.01)
    assert (type(running), running.returncode) == (Forked, -signal.SIGKILL)


def test_other_programs_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETINUE_BIN", "echo")
    assert run_cli(["hello"]) == CliResult(0, "hello\n", "")
