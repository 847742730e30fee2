import json
import os
import stat

import pytest

from retinue.core.errors import ConfigError, KeyRefused, ModelError, UsageError
from retinue.settings.paths import find_paths
from retinue.settings.providers import load_registry
from retinue.settings.stored_keys import StoredKeys
from retinue.testing import MockServer

GOOD = "sk-good-0123456789"
ADDRESSES = {
    "anthropic": ("ANTHROPIC_BASE_URL", ""),
    "openai": ("OPENAI_BASE_URL", "/v1"),
    "google": ("GOOGLE_GEMINI_BASE_URL", ""),
}


@pytest.fixture(scope="module")
def server():
    with MockServer.in_thread([{"text": "yes"}], key=GOOD) as server:
        yield server


@pytest.fixture
def open_keys(home, tmp_path):
    def open_keys(**environment):
        environment["HOME"] = str(home)
        return StoredKeys(find_paths(tmp_path, environment), environment)

    return open_keys


def read(keys):
    return json.loads(keys.path.read_text())


def write(keys, content):
    keys.path.parent.mkdir(parents=True, exist_ok=True)
    keys.path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_key_is_stored_for_the_user_alone(open_keys):
    keys = open_keys()
    keys.store("anthropic", f" {GOOD}\n")
    assert read(keys) == {"anthropic": {"type": "api_key", "key": GOOD}}
    assert (stat.S_IMODE(keys.path.stat().st_mode), os.listdir(keys.path.parent)) == (0o600, ["auth.json"])


def test_other_entries_stay_as_they_are(open_keys):
    keys = open_keys()
    others = {"openai": {"type": "oauth", "access": "a", "more": [1]}, "strange": 5}
    write(keys, {**others, "anthropic": {"type": "api_key", "key": "old", "env": {"A": "b"}}})
    os.chmod(keys.path, 0o644)
    keys.store("anthropic", GOOD)
    assert read(keys) == {**others, "anthropic": {"type": "api_key", "key": GOOD, "env": {"A": "b"}}}
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert keys.remove("Anthropic") == "anthropic"
    assert read(keys) == others


@pytest.mark.parametrize("key", ["a$HOME-b", "!echo", "$$", "$!a", "plain"])
def test_stored_key_is_taken_literally(open_keys, home, tmp_path, key):
    keys = open_keys()
    keys.store("anthropic", key)
    registry, _ = load_registry(find_paths(tmp_path, {"HOME": str(home)}), {"HOME": str(home)})
    assert registry.unlock(registry.providers["anthropic"].models[0])[1] == key


@pytest.mark.parametrize("key", ["two words", "é", "a\x1bb", " "])
def test_what_cannot_be_a_key_is_refused(open_keys, key):
    with pytest.raises(ConfigError, match="key for anthropic") as caught:
        open_keys().store("anthropic", key)
    assert key.strip() == "" or key not in str(caught.value)


def test_links_are_not_followed(open_keys, tmp_path):
    keys, target = open_keys(), tmp_path / "elsewhere.json"
    target.write_text("{}")
    keys.path.parent.mkdir(parents=True)
    keys.path.symlink_to(target)
    with pytest.raises(ConfigError, match="is a symbolic link; nothing is stored"):
        keys.store("anthropic", GOOD)
    assert target.read_text() == "{}"


def test_broken_file_is_not_replaced(open_keys):
    keys = open_keys()
    write(keys, "{")
    with pytest.raises(ConfigError, match="repair or remove the file first"):
        keys.store("anthropic", GOOD)
    assert keys.path.read_text() == "{"


def test_login_of_pi_is_not_replaced(open_keys):
    keys = open_keys()
    write(keys, {"anthropic": {"type": "oauth", "access": "a"}})
    with pytest.raises(ConfigError, match="retinue logout anthropic"):
        keys.store("anthropic", GOOD)


def test_removal_names_the_entries(open_keys):
    keys = open_keys(OPENAI_API_KEY="k")
    with pytest.raises(UsageError, match="has no entry for 'groq'; it has no entries"):
        keys.remove("groq")
    keys.store("openai", GOOD)
    with pytest.raises(UsageError, match="it has entries for: openai"):
        keys.remove("groq")
    keys.remove("openai")
    assert (keys.list_stored(), keys.find_source("openai")) == ([], "OPENAI_API_KEY")


def test_provider_is_found_by_its_name(open_keys):
    keys = open_keys()
    assert keys.find(" Anthropic ") == "anthropic"
    with pytest.raises(UsageError, match="did you mean 'anthropic'"):
        keys.find("antropic")
    with pytest.raises(UsageError, match="known: anthropic, openai, google"):
        keys.find("zzz")


@pytest.mark.parametrize("name", ADDRESSES)
def test_provider_is_asked_about_a_key(open_keys, server, name):
    variable, path = ADDRESSES[name]
    keys = open_keys(**{variable: server.url + path})
    server.requests.clear()
    keys.check(name, GOOD)
    with pytest.raises(KeyRefused) as caught:
        keys.check(name, "sk-wrong-9876543210")
    assert ("status 401; check the key" in str(caught.value), "wrong" in str(caught.value)) == (True, False)
    assert [request.method for request in server.requests] == ["GET", "GET"]


def test_public_list_says_nothing_about_a_key(open_keys, server):
    keys = open_keys()
    url = {"providers": {"openrouter": {"baseUrl": f"{server.url}/v1"}}}
    write(keys, {})
    (keys.path.parent / "models.json").write_text(json.dumps(url))
    server.requests.clear()
    keys.check("openrouter", GOOD)
    (request,) = server.requests
    assert (request.path, request.json["max_tokens"]) == ("/v1/chat/completions", 1)
    with pytest.raises(KeyRefused):
        keys.check("openrouter", "sk-wrong-9876543210")


def test_own_provider_gets_its_headers(open_keys, server):
    house = {
        "baseUrl": f"{server.url}/v1", "api": "openai-completions", "apiKey": "$NOT_SET", "authHeader": True,
        "headers": {"x-team": "blue"}, "models": [{"id": "m"}],
    }  # fmt: skip
    keys = open_keys()
    write(keys, {})
    (keys.path.parent / "models.json").write_text(json.dumps({"providers": {"house": house}}))
    server.requests.clear()
    keys.check(keys.find("house"), GOOD)
    headers = server.requests[0].headers
    assert (headers["x-team"], headers["authorization"]) == ("blue", f"Bearer {GOOD}")


def test_silent_provider_does_not_refuse(open_keys):
    with pytest.raises(ModelError, match=r"does not answer \(.*refused") as caught:
        open_keys(ANTHROPIC_BASE_URL="http://127.0.0.1:9").check("anthropic", GOOD)
    assert not isinstance(caught.value, KeyRefused)


def test_nobody_is_asked_offline(open_keys, server):
    server.requests.clear()
    with pytest.raises(ModelError, match="PI_OFFLINE"):
        open_keys(ANTHROPIC_BASE_URL=server.url, PI_OFFLINE="1").check("anthropic", GOOD)
    assert server.requests == []
