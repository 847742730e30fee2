import json

import pytest

from retinue.core.errors import ConfigError, UsageError
from retinue.settings.paths import find_paths
from retinue.settings.preferences import FIRST, Preferences, find_help, show
from retinue.settings.subagents import SUBAGENT_SETTINGS
from retinue.settings.trust import Trust, decide_trust


@pytest.fixture
def own(tmp_path, monkeypatch, home):
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(home), "PI_ABORT_RESEND_KEY": "f8"}
    (tmp_path / ".pi").mkdir()
    (tmp_path / ".pi" / "subagents.json").write_text("{}")
    return Preferences(find_paths(tmp_path, environment), environment, Trust(True, "saved"))


@pytest.fixture
def users(home):
    path = home / ".pi" / "agent" / "subagents.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


def read(path):
    with open(path) as file:
        return json.load(file)


def test_every_setting_has_help():
    assert [item.key for item in SUBAGENT_SETTINGS if not find_help(item.field)] == []


def test_origins_are_told(own, users, tmp_path):
    users.write_text('{"graceTurns": 9}')
    own.change("maxConcurrent", "2")
    origins = {item.key: item.origin for item in own.list()}
    assert [origins[key] for key in ("graceTurns", "maxConcurrent", "abortResendKey", "runner")] == [
        str(users),
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
    ],
)
def test_words_become_values(own, users, key, text, stored):
    own.change(key, text)
    assert (read(own.path), read(users)) == (stored, {})


@pytest.mark.parametrize(
    ("key", "text", "stored"),
    [
        ("piCommand", "7", {"piCommand": "7"}),
        ("approvalRules", '[{"action": "deny"}]', {"approvalRules": [{"action": "deny"}]}),
        ("runner", "pi", {"runner": "pi"}),
        ("schedulingEnabled", "on", {}),
        ("enabled", "on", {"enabled": True}),
    ],
)
def test_project_says_only_what_it_may(own, users, tmp_path, key, text, stored):
    file = tmp_path / ".pi" / "subagents.json"
    file.write_text('{"runner": "process", "schedulingEnabled": false, "enabled": false}')
    users.write_text('{"enabled": false}')
    own.change(key, text)
    assert read(users) == {"enabled": False} | stored
    assert own.find(key).value == own.read(key, text)[1]
    assert key not in read(own.path)


def test_users_file_is_written_on_request(own, users):
    own.change("graceTurns", "9")
    own.change("graceTurns", "8", for_user=True)
    assert (read(own.path), read(users)) == ({"graceTurns": 9}, {"graceTurns": 8})
    assert (own.find("graceTurns").value, own.find("graceTurns").origin) == (9, own.path)
    own.reset("graceTurns", for_user=True)
    assert (read(own.path), read(users)) == ({"graceTurns": 9}, {})


def test_what_people_change_comes_first(own):
    keys = [item.key for item in own.list()]
    assert keys[: len(FIRST)] == list(FIRST) and sorted(keys) == sorted(item.key for item in SUBAGENT_SETTINGS)
    assert [item.key for item in own.list() if item.ends_group] == [FIRST[-1]]


def test_untrusted_project_is_not_written(users, tmp_path, home):
    environment = {"HOME": str(home)}
    file = tmp_path / ".pi" / "subagents.json"
    file.parent.mkdir()
    file.write_text("{}")
    own = Preferences(find_paths(tmp_path, environment), environment, Trust(False, "no decision"))
    own.change("graceTurns", "9", accepts_file=True)
    assert (own.path, read(file), read(users)) == (str(users), {}, {"graceTurns": 9})


def test_undecided_project_gets_an_accepted_file(users, tmp_path, home):
    environment = {"HOME": str(home)}
    own = Preferences(find_paths(tmp_path, environment), environment, Trust(False, "nothing", is_open=True))
    assert own.needs_consent("graceTurns", "9") and not own.needs_consent("approvals", "ask")
    own.change("graceTurns", "9")
    own.change("maxConcurrent", "2", accepts_file=True)
    own.change("maxConcurrent", "3")
    file = tmp_path / ".pi" / "subagents.json"
    assert (read(users), read(file)) == ({"graceTurns": 9}, {"maxConcurrent": 3})
    assert (own.find("maxConcurrent").value, own.path) == (3, str(file))
    trust = decide_trust(find_paths(tmp_path, environment), approve=None)
    assert (trust.protected, trust.is_open) == ((), True)
    file.write_text('{"maxConcurrent": 4}')  # by somebody else
    own.change("maxConcurrent", "5")
    assert (own.path, read(file), read(users)) == (
        str(users),
        {"maxConcurrent": 4},
        {"graceTurns": 9, "maxConcurrent": 5},
    )


def test_link_is_not_written_through(users, tmp_path, home):
    environment = {"HOME": str(home)}
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".pi").symlink_to(tmp_path / "elsewhere")
    own = Preferences(find_paths(tmp_path / "work", environment), environment, Trust(True, "saved"))
    own.change("graceTurns", "9")
    assert (list((tmp_path / "elsewhere").iterdir()), read(users)) == ([], {"graceTurns": 9})


@pytest.mark.parametrize(
    ("key", "text"),
    [("maxConcurrent", "0"), ("maxConcurrent", "many"), ("runner", "fast"), ("surfaces", "fleet, x"), ("nothing", "1")],
)
def test_bad_words_are_refused(own, key, text):
    with pytest.raises(UsageError):
        own.change(key, text)
    assert read(own.path) == {}


def test_other_keys_stay(own):
    own.change("web.maxResults", "7")
    own.change("web.cache.enabled", "on")
    own.reset("web.cache.enabled")
    assert read(own.path) == {"web": {"maxResults": 7}}
    own.reset("web.maxResults")
    assert own.find("web.maxResults").is_default
    assert read(own.path) == {}


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
