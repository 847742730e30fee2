import pytest

from retinue.cli.options import COMMANDS, parse_arguments
from retinue.cli.suggestion import is_close
from retinue.core.errors import UsageError

ORDINARY = [
    *("hello", "hi", "test", "tests", "status", "commit", "fix", "review", "explain", "refactor", "build", "lint"),
    *("deploy", "import", "report", "modules", "work", "works", "events", "docs", "plan", "continue?", "stop", "go"),
    *("yes", "ok", "thanks", "ping", "summarise", "describe"),
]


def find_error(*arguments):
    with pytest.raises(UsageError) as caught:
        parse_arguments(arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("agnets", "agents"),
        ("agnet", "agents"),
        ("Agents", "agents"),
        ("sesion", "sessions"),
        ("shcedule", "schedules"),
        ("compltions", "completion"),
        ("tust", "trust"),
    ],
)
def test_misspelt_word_is_close(word, meant):
    assert [name for name in COMMANDS if is_close(word.lower(), name)] == [meant]


@pytest.mark.parametrize("word", ORDINARY)
def test_ordinary_word_stays_a_prompt(word):
    assert parse_arguments([word]).prompts == [word]


def test_words_after_a_misspelt_command_count():
    error = "unknown command 'agnets'; did you mean retinue agents? To send it as a prompt: retinue -p 'agnets show x'"
    assert find_error("agnets", "show", "x") == error
    assert parse_arguments(["agnets", "of the world"]).prompts == ["agnets", "of the world"]


def test_settings_and_updates_are_explained():
    remedy = " To send the word as a prompt: retinue -p "
    assert find_error("config").endswith(f"or /settings in the terminal UI?{remedy}config")
    assert "retinue does not update itself" in find_error("update")


def test_continue_in_a_session_is_a_message():
    assert parse_arguments(["-c", "continue"]).prompts == ["continue"]
    assert "did you mean retinue --continue?" in find_error("continue")


def test_word_is_quoted_for_the_shell():
    assert find_error("model$").endswith("retinue -p 'model$'")
