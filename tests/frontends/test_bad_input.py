import json
import os
import shlex
import subprocess
import sys

import pytest

from retinue.engine.clock import SystemClock
from retinue.sessions.log import Session

TEXT = {"text": "Hello"}


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wat"], "unknown option '--wat'"),
        (["--mode", "yaml", "-p", "x"], "--mode must be one of text, json, rpc, not 'yaml'"),
        (["-p", ""], "the prompt is empty"),
        (["-p", "  "], "the prompt is empty"),
        (["-p"], "the prompt is empty"),
        (["-p", "@missing.md"], "cannot read @'missing.md': No such file or directory"),
        (["-p", "@."], "is not a regular file"),
        (["-C", "/nowhere", "-p", "x"], "-C '/nowhere': No such file or directory"),
        (["--tools", "raed", "-p", "x"], "there is no tool 'raed'"),
        (["--session", "deadbeef", "-p", "x"], "deadbeef"),
        (["--session-id", "../evil", "-p", "x"], "session id '../evil' is not usable"),
        (["--model", "anthropic/claude-sonnet-4-5", "-p", "x"], "ANTHROPIC_API_KEY"),
        (["--model", "nobody/gpt", "-p", "x"], "nobody"),
        (["--model", "scripted/none.json", "-p", "x"], "none.json"),
        (["--model", "bridge/x", "-p", "x"], "expected bridge/PROVIDER:ID"),
        (["--model", "bridge/nope:x", "-p", "x"], "Unknown provider: nope"),
    ],
)
def test_mistakes_end_with_status_two(place, arguments, said):
    result = place.run(*arguments)
    assert (result.status, result.stdout) == (2, "")
    assert said in result.stderr and "Traceback" not in result.stderr
    assert place.sessions() == []


def test_wrong_model_name_shows_the_closest(place):
    result = place.run("--model", "claude-sonet-4-5", "-p", "x", env={"ANTHROPIC_API_KEY": "k"})
    assert result.status == 2
    assert "claude-sonnet-4-5" in result.stderr


def test_prompt_of_ten_megabytes_is_refused(place):
    result = place.run("-p", "go", stdin="x" * 10_000_000, replies=[TEXT])
    assert (result.status, "longer than 4 MiB" in result.stderr) == (2, True)


def test_binary_on_stdin_is_refused(place):
    result = place.run("-p", "go", stdin=b"\x7fELF\x00\x01", replies=[TEXT])
    assert (result.status, "binary" in result.stderr) == (2, True)


def test_latin_one_on_stdin_is_refused(place):
    result = place.run("-p", "go", stdin="naïve".encode("latin-1"), replies=[TEXT])
    assert (result.status, "not UTF-8" in result.stderr) == (2, True)


def test_prompt_that_is_not_utf8_is_refused(place):
    result = place.run("-p", os.fsdecode(b"caf\xe9"), replies=[TEXT])
    assert (result.status, "not UTF-8" in result.stderr) == (2, True)


@pytest.mark.sample(4)
@pytest.mark.parametrize("closing", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--version", "run explorer look --json", "-p look"])
def test_closed_streams_are_no_problem(place, closing, words):
    from retinue.testing.process import _command, _environment

    model = "" if words == "--version" else f" --model {place.script({'text': 'Hello'})}"
    command = f"{shlex.join(_command())} {words}{model} {closing}"
    env = _environment(place.home)
    done = subprocess.run(["sh", "-c", command], cwd=place.work, env=env, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(json.loads(line) for path in place.sessions() for line in path.read_text().splitlines())


def test_closed_stdin_is_no_problem(place):
    command = [sys.executable, "-m", "retinue", "--model", place.script(TEXT), "-p", "Hi"]
    env = {**os.environ, "HOME": str(place.home)}
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], cwd=place.work, env=env, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"Hello\n")


def test_folder_that_vanished_is_named(place):
    gone = place.root / "gone"
    gone.mkdir()
    command = [sys.executable, "-m", "retinue", "-p", "Hi"]
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    env = {**os.environ, "HOME": str(place.home)}
    done = subprocess.run(["sh", "-c", script, str(gone), *command], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert "folder" in done.stderr or "directory" in done.stderr


def test_unwritable_sessions_do_not_lose_the_answer(place):
    blocked = place.root / "file"
    blocked.write_text("")
    result = place.run("--session-dir", str(blocked / "x"), "-p", "Hi", replies=[TEXT])
    assert (result.status, result.stdout) == (1, "Hello\n")
    assert "not saved" in result.stderr and "Traceback" not in result.stderr


def test_broken_settings_disable_only_themselves(place):
    (place.agent_dir / "settings.json").write_text('{"defaultModel": 5, "retry": {"maxRetries": "x"},}')
    result = place.run("-p", "Hi", replies=[TEXT])
    assert (result.status, result.stdout) == (0, "Hello\n")
    assert "settings.json" in result.stderr


def test_broken_models_file_is_named(place):
    (place.agent_dir / "models.json").write_text('{"providers": {"mock": {"baseUrl": 5}}}')
    result = place.run("-p", "Hi", replies=[TEXT])
    assert result.status == 0
    assert "models.json" in result.stderr and "baseUrl" in result.stderr


def test_second_writer_is_refused(place):
    place.run("-p", "one", replies=[TEXT, TEXT])
    held = Session.open(place.sessions()[0], clock=SystemClock(), new_id=lambda: "x" * 8)
    result = place.run("-c", "-p", "two", replies=[TEXT, TEXT])
    held.close()
    assert (result.status, str(os.getpid()) in result.stderr) == (1, True)


def test_project_settings_wait_for_trust(place):
    (place.work / ".pi").mkdir()
    (place.work / ".pi" / "SYSTEM.md").write_text("Obey the repository.")
    quiet = place.run("--mode", "json", "-p", "Hi", replies=[TEXT])
    trusted = place.run("--approve", "--mode", "json", "-p", "Hi", replies=[TEXT])
    assert "Obey the repository." not in quiet.stdout and "--approve" in quiet.stderr
    assert "Obey the repository." in trusted.stdout and trusted.stderr == ""


def test_version_survives_a_closed_pipe(place):
    command = f"{sys.executable} -m retinue --version | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_command_behind_options_is_no_prompt(place):
    done = place.run("--no-session", "models", replies=[{"text": "an answer"}])
    remedy = "to send the word as a prompt: retinue -p models"
    told = f"retinue: put the command before its options: retinue models …; {remedy}\n"
    assert (done.status, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("modles", "models"),
        ("model", "models"),
        ("agent", "agents"),
        ("docter", "doctor"),
        ("wyh", "why"),
        ("Run", "run"),
        ("agnets", "agents"),
        ("completions", "completion"),
    ],
)
def test_misspelt_command_is_no_prompt(place, word, command):
    done = place.run(word, replies=[{"text": "an answer"}])
    told = f"retinue: unknown command '{word}'; did you mean retinue {command}?"
    told += f" To send the word as a prompt: retinue -p {word}\n"
    assert (done.status, done.stdout, done.stderr) == (2, "", told)
    for arguments in (("-p", word), ("-p", word, "now"), ("--", word), (word, "of the world")):
        sent = place.run(*arguments, replies=[{"text": "an answer"}] * 2)
        assert (sent.status, sent.stdout) == (0, "an answer\n"), sent.stderr


@pytest.mark.parametrize("word", ["config", "resume", "help"])
def test_command_of_other_programs_is_no_prompt(place, word):
    done = place.run(word, replies=[{"text": "an answer"}], stdin="piped text")
    assert (done.status, done.stdout, done.stderr.count(f"To send the word as a prompt: retinue -p {word}\n")) == (
        2,
        "",
        1,
    )
    assert place.run("-p", word, replies=[{"text": "an answer"}]).stdout == "an answer\n"


def test_resume_needs_the_terminal_ui(place):
    for arguments in (["--resume"], ["--resume", "-p", "Hi"], ["-r", "--mode", "rpc"]):
        done = place.run(*arguments, replies=[])
        assert (done.status, done.stdout) == (2, "")
        assert "use --continue for the newest session, or --session ID" in done.stderr


@pytest.mark.parametrize("word", ["hello", "test", "status", "modal", "logging", "report"])
def test_other_word_is_a_prompt(place, word):
    assert place.run(word, replies=[{"text": "an answer"}]).stdout == "an answer\n"
