import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.cli.completion import complete
from retinue.cli.options import COMMANDS, parse_arguments
from retinue.core.errors import UsageError

PROGRAM = str(Path(sys.executable).parent / "retinue")


def find_words(*words):
    return [word for word, _ in complete(words)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ag"], ["agents"]),
        (["-C", "x", "do"], ["doctor"]),
        (["--con"], ["--continue"]),
        (["--mode", ""], ["text", "json", "rpc"]),
        (["--mode=j"], ["--mode=json"]),
        (["agents", "--thinking", "m"], ["minimal", "medium", "max"]),
        (["agents", "e"], ["eject", "enable"]),
        (["cluster", ""], ["status", "fetch", "prune"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["agents", "show", "gen"], ["general-purpose"]),
        (["run", "--write", "gen"], ["general-purpose"]),
        (["--session-dir", ""], []),
        (["trust", ""], []),
        (["a prompt", "ag"], []),
    ],
)
def test_last_word_is_completed(words, found, home):
    assert find_words(*words) == found


def test_everything_completed_is_parsed():
    assert find_words("") == list(COMMANDS)
    for command in COMMANDS:
        for flag in find_words(command, "--"):
            try:
                parse_arguments([command, flag])
            except UsageError as error:
                assert str(error) == f"{flag} needs a value"


def run_shell(shell, script, home):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    environment = {"HOME": str(home), "PATH": f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, env=environment, timeout=30)
    return done.stdout.split("\n"), done.stderr


@pytest.mark.parametrize(("words", "found"), [("agents sh", "show"), ("--mode = j", "json"), ("run --wr", "--write")])
def test_bash_completes_a_line(words, found, home):
    count = len(words.split())
    script = f'''set -eu; text=$(retinue completion bash); bash -n <<<"$text"; eval "$text"
        complete -p retinue; COMP_WORDS=(retinue {words}); COMP_CWORD={count}; _retinue; echo "${{COMPREPLY[@]}}"'''
    lines, errors = run_shell("bash", script, home)
    assert (lines, errors) == (["complete -o default -F _retinue retinue", found, ""], "")


def test_zsh_accepts_the_script(home):
    script = """autoload -U compinit; compinit -u -D; text=$(retinue completion zsh); eval "$text"
        print ${_comps[retinue]}; _describe() { print -l ${(P)2} }; words=(retinue agents sh); CURRENT=3; _retinue"""
    lines, errors = run_shell("zsh", script, home)
    assert (lines[0], lines[1][:5], errors) == ("_retinue", "show:", "")


def test_fish_completes_a_line(home):
    lines, errors = run_shell("fish", "retinue completion fish | source; complete -C 'retinue agents sh'", home)
    assert (lines[0][:5], errors) == ("show\t", "")
