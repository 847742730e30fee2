import time
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ConfigError, ModelError
from retinue.core.model import ModelInfo
from retinue.models.auth import Credential, Keys, SecretResolver, parse_auth
from retinue.models.catalog import Provider, load_catalog

MODEL = ModelInfo("house", "m", "openai-completions")
SHELL = {"PATH": "/usr/bin:/bin"}


def house(**options: Any) -> Provider:
    return Provider("house", "House", "openai-completions", "https://x", lambda: (MODEL,), ("HOUSE_KEY",), **options)


def test_entries_of_auth_file() -> None:
    raw = {
        "a": {"type": "api_key", "key": "k", "env": {"X": "1"}},
        "b": {"type": "oauth", "access": "s", "refresh": "s", "expires": 1},
        "c": {"type": "api_key", "key": 5},
        "d": {"type": "token", "key": "sk-secret"},
        "e": "sk-secret",
        "f": {"type": "api_key"},
    }
    found, diagnostics = parse_auth(raw, "f")
    assert found == {"a": Credential("k", {"X": "1"}), "b": Credential(is_login=True), "f": Credential()}
    assert [item.message for item in diagnostics] == [
        "f: c.key: found a number; expected text that is not empty",
        'f: d.type: found \'token\'; expected "api_key" (or "oauth", which only pi can use)',
        "f: e: found a string; expected an object",
    ]


def test_precedence_is_pis() -> None:
    stored, environment = {"house": Credential("stored")}, {"HOUSE_KEY": "env"}
    provider = house(api_key="config")
    assert Keys(environment, stored, flag="flag").unlock(provider, MODEL) == (MODEL, "flag")
    assert Keys(environment, stored).unlock(provider, MODEL) == (MODEL, "stored")
    assert Keys(environment).unlock(provider, MODEL) == (MODEL, "config")
    assert Keys(environment).unlock(house(), MODEL) == (MODEL, "env")


def test_unset_variable_makes_way_for_the_next() -> None:
    keys = Keys({"HOUSE_KEY": "env"}, {"house": Credential("$NOWHERE")})
    assert keys.find_source(house(api_key="${NOR_HERE}")) == "HOUSE_KEY"
    assert not Keys({"HOUSE_KEY": ""}, {"house": Credential("$NOWHERE")}).has_key(house())


def test_own_variables_win_over_environment() -> None:
    keys = Keys({"A": "outer", "HOUSE_KEY": "outer"}, {"house": Credential("$A-key", {"A": "inner"})})
    assert keys.unlock(house(), MODEL)[1] == "inner-key"
    assert Keys({}, {"house": Credential(None, {"HOUSE_KEY": "inner"})}).unlock(house(), MODEL)[1] == "inner"


def test_missing_key_says_what_to_do() -> None:
    keys = Keys({}, {"house": Credential(is_login=True)}, auth_file="/a/auth.json")
    with pytest.raises(ModelError) as caught:
        keys.unlock(house(), MODEL)
    assert str(caught.value) == (
        "no key for provider house: run retinue login house, or set HOUSE_KEY "
        "(/a/auth.json has a login for it, which only pi can use)"
    )
    assert keys.explain_missing(house(api_key="$Q")) == (
        "no key for provider house: set Q, which its apiKey in models.json names, or run retinue login house "
        "(/a/auth.json has a login for it, which only pi can use)"
    )


@pytest.mark.parametrize(
    ("environment", "key", "headers"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "k", {}),
        ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_OAUTH_TOKEN": "o"}, "o", {}),
        ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t"}, "", {"Authorization": "Bearer t"}),
    ],
)
def test_anthropic_takes_three_variables(environment: dict[str, str], key: str, headers: dict[str, str]) -> None:
    provider = load_catalog()["anthropic"]
    info, found = Keys(environment).unlock(provider, provider.models[0])
    assert (found, info.headers) == (key, headers)


def test_provider_in_trouble_gets_no_key() -> None:
    with pytest.raises(ModelError, match="it has a mistake"):
        Keys({"HOUSE_KEY": "k"}, flag="k").unlock(house(trouble="it has a mistake"), MODEL)


def test_headers_resolve_like_keys() -> None:
    provider = house(headers={"A": "$X/y", "B": "b"}, model_headers={"m": {"B": "!echo own"}}, auth_header=True)
    info, key = Keys({"HOUSE_KEY": "k", "X": "1", **SHELL}).unlock(provider, MODEL)
    assert (key, info.headers) == ("k", {"A": "1/y", "B": "own", "Authorization": "Bearer k"})


def test_key_with_blanks_is_refused_unseen() -> None:
    with pytest.raises(ConfigError) as caught:
        Keys({"HOUSE_KEY": "sk secret"}).unlock(house(), MODEL)
    assert "secret" not in str(caught.value)
    assert Keys({"HOUSE_KEY": " k\n"}).unlock(house(), MODEL)[1] == "k"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("$A", "1"),
        ("${A}b$A", "1b1"),
        ("$$A$!x", "$A!x"),
        ("a$", "a$"),
        ("${a b}", "${a b}"),
        ("${A", "${A"),
    ],
)
def test_values_are_filled_in(value: str, text: str) -> None:
    assert SecretResolver({"A": "1"}).resolve(value, "x") == text


def test_command_runs_once(tmp_path: Path) -> None:
    keys = Keys(SHELL)
    provider = house(api_key=f"!echo run >> {tmp_path}/log; echo key")
    assert keys.has_key(provider)
    assert not (tmp_path / "log").exists()
    assert [keys.unlock(provider, MODEL)[1] for _ in range(3)] == ["key"] * 3
    assert (tmp_path / "log").read_text() == "run\n"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo sk-secret; exit 3", "its command failed with status 3"),
        ("true", "its command printed nothing"),
        ("printf '\\377'", "its command printed something that is not text"),
        ("sleep 30", "its command gave no result within 1 s"),
        ("sleep 30 & sleep 30", "its command gave no result within 1 s"),
        ("echo sk-secret; sleep 30 &", "its command gave no result within 1 s"),
        ("yes sk-secret", "its command gave no result within 1 s"),
    ],
)
def test_failing_command_is_told_without_output(command: str, problem: str) -> None:
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        SecretResolver(SHELL, timeout_s=1).resolve(f"!{command}", "key of provider house")
    assert str(caught.value) == f"key of provider house: {problem}"
    assert time.monotonic() - started < 20
