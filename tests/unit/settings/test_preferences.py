import json

import pytest

from retinue.core.errors import ConfigError, UsageError
from retinue.settings.paths import find_paths
from retinue.settings.preferences import Preferences, find_help, show
from retinue.settings.subagents import CREW_SETTINGS


@pytest.fixture
def own(tmp_path, monkeypatch, home):
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(home), "PI_ABORT_RESEND_KEY": "f8"}
    (tmp_path / ".pi").mkdir()
    (tmp_path / ".pi" / "subagents.json").write_text("{}")
    return Preferences(find_paths(tmp_path, environment), environment, trusted=True)


def read(own):
    with open(own.path) as file:
        return json.load(file)


def test_every_setting_has_help():
    assert [item.key for item in CREW_SETTINGS if not find_help(item.field)] == []


def test_origins_are_told(own, tmp_path):
    own.change("graceTurns", "9")
    (tmp_path / ".pi" / "subagents.json").write_text('{"maxConcurrent": 2}')
    origins = {item.key: item.origin for item in own.list()}
    assert [origins[key] for key in ("graceTurns", "maxConcurrent", "abortResendKey", "runner")] == [
        own.path,
        str(tmp_path / ".pi" / "subagents.json"),
        "environment",
        "default",
    ]


@pytest.mark.parametrize(
    ("key", "text", "stored"),
    [
        ("fleetView", "off", {"fleetView": False}),
        ("web.debug", "minimal", {"web": {"debug": "minimal"}}),
        ("surfaces", "fleet, dispatch", {"surfaces": ["fleet", "dispatch"]}),
        ("limits.idleSeconds", "none", {"limits": {"idleSeconds": None}}),
        ("budget.costUsd", "1.5", {"budget": {"costUsd": 1.5}}),
        ("fallbackSubagent", "general-purpose", {"fallbackSubagent": "general-purpose"}),
        ("piCommand", "7", {"piCommand": "7"}),
        ("approvalRules", '[{"action": "deny"}]', {"approvalRules": [{"action": "deny"}]}),
    ],
)
def test_words_become_values(own, key, text, stored):
    own.change(key, text)
    assert read(own) == stored


@pytest.mark.parametrize(
    ("key", "text"),
    [("maxConcurrent", "0"), ("maxConcurrent", "many"), ("runner", "fast"), ("surfaces", "fleet, x"), ("nothing", "1")],
)
def test_bad_words_are_refused(own, key, text):
    with pytest.raises(UsageError):
        own.change(key, text)
    with pytest.raises(FileNotFoundError):
        read(own)


def test_other_keys_stay(own):
    own.change("web.maxResults", "7")
    own.change("web.cache.enabled", "on")
    own.reset("web.cache.enabled")
    assert read(own) == {"web": {"maxResults": 7}}
    assert own.reset("web.maxResults").is_default
    assert read(own) == {}


def test_broken_file_is_not_replaced(own):
    own.change("graceTurns", "9")
    with open(own.path, "w") as file:
        file.write("{oops")
    with pytest.raises(ConfigError, match="repair or remove the file first"):
        own.change("graceTurns", "3")
    with open(own.path) as file:
        assert file.read() == "{oops"


def test_values_read_like_words():
    assert [show(value) for value in (None, True, False, (), ("a", "b"), 7)] == [
        "none",
        "on",
        "off",
        "(empty)",
        "a, b",
        "7",
    ]
