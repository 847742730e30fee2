import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.sessions.compaction import CompactionConfig
from retinue.settings.checks import read_field, select_tools
from retinue.settings.layers import Layer, LoadedSettings, load_settings, merge_layers, read_layer
from retinue.settings.paths import find_paths
from retinue.settings.schema import PI_KEYS, SETTINGS, CompactionSettings, Settings


@pytest.fixture
def load(tmp_path: Path, agent_dir: Path) -> Any:
    project = tmp_path / "project"
    (project / ".pi").mkdir(parents=True)

    def run(user: Any = None, project_file: Any = None, **options: Any) -> LoadedSettings:
        for path, content in ((agent_dir / "settings.json", user), (project / ".pi" / "settings.json", project_file)):
            if content is not None:
                path.write_text(content if isinstance(content, str) else json.dumps(content))
        return load_settings(find_paths(project, os.environ), os.environ, **options)

    return run


def texts(loaded: LoadedSettings) -> list[str]:
    return [item.message.partition("settings.json: ")[2] for item in loaded.diagnostics]


def test_nothing_gives_the_defaults(load: Any) -> None:
    assert (load().settings, load().diagnostics) == (Settings(), ())


def test_each_layer_wins_over_the_one_below(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user = {"defaultModel": "u", "defaultProvider": "u", "sessionDir": "u", "steeringMode": "all"}
    project = {"defaultModel": "p", "sessionDir": "p"}
    monkeypatch.setenv("PI_CODING_AGENT_SESSION_DIR", "e")
    loaded = load(user, project, approve=True, flags={"defaultModel": "f", "defaultThinkingLevel": None})
    assert loaded.settings == Settings(default_model="f", default_provider="u", session_dir="e", steering_mode="all")
    assert [loaded.find_origin(key).rpartition("/")[2] for key in ("defaultModel", "steeringMode", "shellPath")] == [
        "flag",
        "settings.json",
        "default",
    ]


@pytest.mark.attack("A3")
def test_untrusted_project_file_is_not_opened(load: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "project" / ".pi" / "settings.json")
    loaded = load({"defaultModel": "u"})
    assert (loaded.settings.default_model, loaded.trust.trusted, loaded.diagnostics) == ("u", False, ())


@pytest.mark.attack("A4")
def test_project_cannot_trust_itself(load: Any) -> None:
    loaded = load(None, {"defaultProjectTrust": "always"}, approve=True)
    assert loaded.settings.default_project_trust == "ask"
    assert texts(loaded) == ["defaultProjectTrust: ignored, it can only be set in the user's own settings file"]


def test_bad_fields_are_dropped_one_by_one(load: Any) -> None:
    loaded = load(
        {
            "defaultModel": 5,
            "followUpMode": "some",
            "compaction": {"reserveTokens": -1, "keepRecentTokens": 10, "modelOverrides": {"a/b": {"x": 1}}},
            "retry": [],
            "enabledModels": ["ok", 3],
            "steeringMode": "all",
            "httpIdleTimeoutMs": "10",
        }
    )
    assert loaded.settings == Settings(
        compaction=CompactionSettings(keep_recent_tokens=10, model_overrides={"a/b": {}}),
        enabled_models=("ok",),
        steering_mode="all",
    )
    assert texts(loaded) == [
        "defaultModel: found 5; expected text that is not blank",
        'followUpMode: found \'some\'; expected one of "all", "one-at-a-time"',
        "compaction.reserveTokens: found -1; expected a whole number from 0",
        "compaction.modelOverrides['a/b'].x: found 1; expected only reserveTokens, keepRecentTokens",
        "retry: found an array; expected an object",
        "enabledModels[1]: found 3; expected text that is not blank",
        "httpIdleTimeoutMs: found '10'; expected a whole number from 0 to 86400000 or \"disabled\"",
    ]


def test_unknown_key_names_the_closest(load: Any) -> None:
    loaded = load({"defaultModle": "x", "retry": {"maxRetry": 1}, "theme": "dark", "terminal": {"x": 1}})
    assert texts(loaded) == [
        "unknown setting 'defaultModle' (did you mean 'defaultModel'?)",
        "unknown setting 'retry.maxRetry' (did you mean 'maxRetries'?)",
    ]
    assert {item.severity for item in loaded.diagnostics} == {"warning"}


def test_broken_user_file_leaves_defaults(load: Any) -> None:
    loaded = load('{"defaultModel": "x",}')
    assert (loaded.settings, [item.code for item in loaded.diagnostics]) == (Settings(), ["json"])


def test_unclear_switch_is_told(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_OFFLINE", "maybe")
    assert [item.message for item in load().diagnostics] == [
        "environment: PI_OFFLINE: found 'maybe'; expected 1, true, yes, 0, false or no"
    ]


def test_older_name_of_steering_mode(load: Any) -> None:
    assert load({"queueMode": "all"}).settings.steering_mode == "all"


def test_objects_join_across_layers(load: Any) -> None:
    user = {"thinkingBudgets": {"low": 1, "high": 2}, "compaction": {"modelOverrides": {"a/b": {"reserveTokens": 1}}}}
    project = {"thinkingBudgets": {"high": 3}, "compaction": {"modelOverrides": {"a/b": {"keepRecentTokens": 2}}}}
    found = load(user, project, approve=True).settings
    assert (found.thinking_budgets, found.compaction.for_model("a/b")) == (
        {"low": 1, "high": 3},
        CompactionConfig(True, 1, 2),
    )


@pytest.mark.parametrize(
    ("entries", "selected"),
    [
        ([], ()),
        (["read", "ls"], ("read", "ls")),
        (["-bash", "+web"], ("read", "edit", "write", "grep", "find", "ls", "web")),
        (["read", "+ls", "-read", "+ls"], ("ls",)),
        (["-nothing"], BUILTIN_TOOLS),
    ],
)
def test_tool_lists_replace_or_change(entries: list[str], selected: tuple[str, ...]) -> None:
    assert select_tools(BUILTIN_TOOLS, tuple(entries)) == selected


def test_project_tools_change_the_users(load: Any) -> None:
    loaded = load({"defaultTools": ["read"]}, {"defaultTools": ["+grep"]}, approve=True)
    assert loaded.settings.default_tools == ("read", "grep")


def test_table_names_every_field_once() -> None:
    groups = ("compaction", "branch_summary", "retry")
    fields = [
        f"{name}.{inner}" if name in groups else name
        for name in Settings.__struct_fields__
        for inner in (type(getattr(Settings(), name)).__struct_fields__ if name in groups else ("",))
    ]
    assert sorted(item.field for item in SETTINGS) == sorted(fields)
    assert not {item.key for item in SETTINGS} & PI_KEYS


def test_defaults_pass_their_own_checks() -> None:
    for item in SETTINGS:
        value = read_field(Settings(), item)
        if value is not None:
            plain = list(value) if isinstance(value, tuple) else value
            assert item.check.convert(plain, lambda *bad: pytest.fail(str(bad))) == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(sorted({part for item in SETTINGS for part in item.key.split(".")} | PI_KEYS)) | st.text(
    max_size=5
)


@example({"thinkingBudgets": {"\n": None}})
@given(st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3), max_size=5))
def test_any_object_gives_settings(raw: dict[str, Any]) -> None:
    layer, diagnostics = read_layer(SETTINGS, raw, "user", "f", ignore=PI_KEYS)
    found = merge_layers(Settings(), SETTINGS, [layer, Layer("flag", {})])
    assert isinstance(found, Settings)
    assert all(item.message.startswith("f: ") and "\n" not in item.message for item in diagnostics)
