"""`retinue login` and `retinue logout`."""

import json
import sys

import pytest

from retinue.testing import MockServer
from tests.terminal import open_terminal

GOOD, WRONG = "sk-good-0123456789", "sk-wrong-9876543210"


@pytest.fixture(scope="module")
def server():
    with MockServer.in_thread({"replies": [{"text": "found"}], "repeat": True}, key=GOOD) as server:
        yield server


def stored(place):
    path = place.agent_dir / "auth.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_piped_key_is_used_from_then_on(place, server):
    env = {"ANTHROPIC_BASE_URL": server.url}
    done = place.run("login", "anthropic", stdin=f"{GOOD}\n", env=env)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == f"anthropic: the key works and is stored in {place.agent_dir / 'auth.json'}\n"
    assert stored(place) == {"anthropic": {"type": "api_key", "key": GOOD}}
    asked = place.run("-p", "look", env=env)
    assert (asked.status, asked.stdout.strip()) == (0, "found")
    done = place.run("logout", "anthropic")
    assert (done.status, "is removed" in done.stdout, stored(place)) == (0, True, {})


def test_wrong_key_is_not_stored(place, server):
    done = place.run("login", "anthropic", stdin=WRONG, env={"ANTHROPIC_BASE_URL": server.url})
    assert (done.status, stored(place), WRONG in done.stderr) == (2, None, False)
    assert "anthropic does not accept this key; nothing is stored (" in done.stderr and "status 401" in done.stderr


def test_silent_provider_is_told(place):
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    done = place.run("login", "anthropic", stdin=GOOD, env=env)
    assert (done.status, stored(place), GOOD in done.stderr) == (1, None, False)
    assert "the key cannot be checked; nothing is stored (" in done.stderr
    assert done.stderr.endswith("to store it anyway: retinue login anthropic --no-check\n")
    done = place.run("login", "anthropic", "--no-check", stdin=GOOD, env=env)
    assert (done.status, "stored without a check" in done.stdout, stored(place)["anthropic"]["key"]) == (0, True, GOOD)


@pytest.mark.parametrize(
    ("args", "stdin", "text"),
    [
        (["login"], GOOD, "which provider? retinue login NAME, with one of: anthropic, openai"),
        (["login", "antropic"], GOOD, "unknown provider 'antropic' (did you mean 'anthropic'?)"),
        (["login", "anthropic"], " \n", "no key was given; nothing is stored"),
        (["login", "anthropic", "--no-check"], "two words", "expected the bare key"),
        (["login", "anthropic", GOOD], "", "takes no argument"),
        (["logout", "groq"], "", "has no entry for 'groq'; it has no entries"),
    ],
)
def test_mistakes_are_explained(place, args, stdin, text):
    done = place.run(*args, stdin=stdin)
    assert (done.status, text in done.stderr, stored(place)) == (2, True, None)


def test_logout_says_who_has_an_entry(place):
    done = place.run("logout")
    assert (done.status, done.stdout.endswith("has no entries\n")) == (0, True)
    place.run("login", "groq", "--no-check", stdin=GOOD)
    done = place.run("logout", env={"GROQ_API_KEY": "other"})
    assert (done.status, "has entries for: groq" in done.stderr) == (2, True)
    done = place.run("logout", "groq", env={"GROQ_API_KEY": "other"})
    assert (done.status, done.stderr) == (0, "retinue: groq still has a key: GROQ_API_KEY\n")


def test_missing_key_leads_to_login(place):
    assert "run retinue login groq, or set GROQ_API_KEY" in place.run("-p", "x", "--provider", "groq").stderr
    assert "run retinue login" in place.run("-p", "hello").stderr
    assert "retinue login stores one" in place.run("models").stderr


def test_terminal_does_not_show_the_key(place, server):
    env = {"HOME": str(place.home), "PI_CODING_AGENT_DIR": str(place.agent_dir), "ANTHROPIC_BASE_URL": server.url}
    words = [sys.executable, "-m", "retinue", "login"]
    with open_terminal(words, place.work, {"PATH": "/usr/bin:/bin", "TERM": "xterm", **env}) as terminal:
        terminal.wait_for("Provider, by number or name")
        terminal.type("1\n")
        terminal.wait_for("API key for anthropic (not shown)")
        terminal.type(f"{GOOD}\n")
        assert terminal.wait() == 0
        assert (b"the key works and is stored" in terminal.output, GOOD.encode() in terminal.output) == (True, False)
    assert stored(place)["anthropic"]["key"] == GOOD
