import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.settings.checks import read_field
from retinue.settings.devkit import LspHook
from retinue.settings.paths import find_paths
from retinue.settings.subagents import IGNORED, SUBAGENT_SETTINGS, LoadedSubagents, SubagentsConfig, load_subagents


@pytest.fixture
def load(tmp_path: Path, agent_dir: Path) -> Any:
    project = tmp_path / "project"
    (project / ".pi").mkdir(parents=True)
    devkit = agent_dir / "extensions" / "devkit-pi"
    devkit.mkdir(parents=True)

    def run(user: Any = None, project_file: Any = None, kit: Any = None, *, trusted: bool = True) -> LoadedSubagents:
        files = {agent_dir / "subagents.json": user, project / ".pi" / "subagents.json": project_file}
        for path, content in {**files, devkit / "config.json": kit}.items():
            if content is not None:
                path.write_text(content if isinstance(content, str) else json.dumps(content))
        return load_subagents(find_paths(project, os.environ), os.environ, trusted=trusted)

    return run


def texts(loaded: LoadedSubagents) -> list[str]:
    return [item.message.partition(".json: ")[2] for item in loaded.diagnostics]


def get(loaded: LoadedSubagents, key: str) -> Any:
    return read_field(loaded.settings, next(item for item in SUBAGENT_SETTINGS if item.key == key))


def nest(key: str, value: Any) -> Any:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def test_nothing_gives_the_defaults(load: Any) -> None:
    assert (load().settings, load().diagnostics) == (SubagentsConfig(), ())


def test_every_key_is_a_field_once() -> None:
    keys, fields = [item.key for item in SUBAGENT_SETTINGS], [item.field for item in SUBAGENT_SETTINGS]
    assert (len(set(keys)), len(set(fields))) == (len(keys), len(fields))
    assert not IGNORED & set(keys)
    assert [read_field(SubagentsConfig(), item) for item in SUBAGENT_SETTINGS]


@pytest.mark.spec("fleet:B96")
def test_project_beats_user_per_key(load: Any) -> None:
    loaded = load({"maxConcurrent": 2, "graceTurns": 7}, {"maxConcurrent": 3})
    assert (loaded.settings.max_concurrent, loaded.settings.grace_turns, texts(loaded)) == (3, 7, [])


@pytest.mark.spec("fleet:B96")
def test_bad_values_drop_one_by_one(load: Any) -> None:
    loaded = load({"maxConcurrent": 0, "graceTurns": 1001, "waitTimeoutSeconds": 30, "widgetMode": "none"})
    assert loaded.settings == SubagentsConfig(wait_timeout_seconds=30)
    assert texts(loaded) == [
        "maxConcurrent: found 0; expected a whole number from 1 to 1024",
        "graceTurns: found 1001; expected a whole number from 1 to 1000",
        'widgetMode: found \'none\'; expected one of "all", "background", "off"',
    ]


@pytest.mark.spec("fleet:B96", "devkit:58")
@pytest.mark.parametrize("where", ["user", "project_file", "kit"])
def test_malformed_file_is_left_out(load: Any, where: str) -> None:
    loaded = load(**{"user": {"maxConcurrent": 2}, where: '{"maxConcurrent": 9,}'})
    assert loaded.settings.max_concurrent == (4 if where == "user" else 2)
    assert [item.code for item in loaded.diagnostics] == ["json"]


def test_untrusted_project_file_stays_closed(load: Any) -> None:
    loaded = load(None, "not even JSON", trusted=False)
    assert (loaded.settings, loaded.diagnostics) == (SubagentsConfig(), ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("approvals", "bypass"),
        ("approvalRules", [{"tool": "bash", "allow": True}]),
        ("sandbox.mode", "off"),
        ("sandbox.network", True),
        ("sandbox.writable", ["/"]),
        ("alwaysExposedExtensions", ["evil"]),
        ("subagents.readonlyBash", True),
        ("subagents.allowWrite", True),
        ("subagents.maxDepth", 9),
        ("web.provider", "searxng"),
        ("web.searxng.baseUrl", "http://evil.example"),
        ("web.brave.apiKeyEnv", "AWS_SECRET_ACCESS_KEY"),
        ("web.allowPrivateNetwork", True),
        ("convertContent.command", "./convert"),
        ("lsp.tool.allowMutatingActions", True),
    ],
)
def test_project_cannot_widen_rights(load: Any, key: str, value: Any) -> None:
    loaded = load(None, nest(key, value))
    assert loaded.settings == SubagentsConfig()
    assert texts(loaded) == [f"{key}: ignored, it can only be set in the user's own settings file"]
    assert get(load(nest(key, value), "{}"), key) == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("key", ["tokens", "costUsd"])
@pytest.mark.parametrize(("user", "project", "used"), [(10, 90, 10), (10, 5, 5), (10, None, 10), (None, 90, 90)])
def test_project_cannot_raise_the_budget(load: Any, key: str, user: Any, project: Any, used: int) -> None:
    budget = load({"budget": {key: user}}, {"budget": {key: project}}).settings.budget
    assert (budget.tokens if key == "tokens" else budget.cost_usd) == used


@pytest.mark.parametrize("key", [item.key for item in SUBAGENT_SETTINGS if item.limit.off_only])
def test_project_only_switches_off(load: Any, key: str) -> None:
    loaded = load(nest(key, False), nest(key, True))
    assert (get(loaded, key), texts(loaded)) == (False, [f"{key}: ignored, a project can switch it off but not on"])
    assert get(load(nest(key, True), nest(key, False)), key) is False


def test_own_file_wins_over_devkit_file(load: Any) -> None:
    loaded = load({"web": {"maxResults": 9}}, None, {"web": {"maxResults": 2, "timeoutMs": 5}, "maxConcurrent": 9})
    assert (loaded.settings.web.max_results, loaded.settings.web.timeout_ms) == (9, 5)
    assert (loaded.settings.max_concurrent, texts(loaded)) == (4, ["unknown setting 'maxConcurrent'"])


@pytest.mark.spec("devkit:57")
def test_devkit_types_fall_back_per_key(load: Any) -> None:
    kit = {
        "subagents": {"timeoutMs": "5", "maxDepth": -1, "allowWrite": "true"},
        "web": {"debug": True, "maxResults": 1.5},
    }
    settings = load(None, None, kit).settings
    assert settings.subagents == SubagentsConfig().subagents
    assert (settings.web.debug, settings.web.max_results) == ("minimal", 5)


@pytest.mark.spec("devkit:59")
@pytest.mark.parametrize("hook", [{"mode": "disabled"}, {"enabled": False}, {"enabled": True, "mode": "disabled"}])
def test_hook_is_off_either_way(load: Any, hook: Any) -> None:
    assert load({"lsp": {"hook": hook}}).settings.lsp.hook == LspHook(False, "disabled")


@pytest.mark.spec("devkit:24")
@pytest.mark.parametrize(
    "change",
    [
        {"subagents": {"allowLspTools": False}},
        {"subagents": {"allowedLspActions": ["rename"]}},
        {"lsp": {"enabled": False}},
        {"lsp": {"tool": {"enabled": False}}},
    ],
)
def test_each_switch_takes_lsp_away(load: Any, change: Any) -> None:
    assert (load(change).settings.has_child_lsp, SubagentsConfig().has_child_lsp) == (False, True)


@pytest.mark.spec("devkit:11")
def test_environment_wins_over_depth(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_SUBAGENT_MAX_DEPTH", "3")
    assert load({"subagents": {"maxDepth": 0}}).settings.subagents.max_depth == 3
    monkeypatch.setenv("PI_SUBAGENT_MAX_DEPTH", "many")
    assert load().settings.subagents.max_depth == 0


def test_limits_may_be_none(load: Any) -> None:
    loaded = load({"limits": {"idleSeconds": None, "wallSeconds": 0.5, "toolSeconds": 0}, "budget": {"tokens": 10}})
    limits = loaded.settings.limits
    assert (limits.idle_seconds, limits.wall_seconds, limits.tool_seconds) == (None, 0.5, 600)
    assert texts(loaded) == ["limits.toolSeconds: found 0; expected a number above 0, or null for no limit"]


def test_keys_of_other_versions_pass(load: Any) -> None:
    assert load({"guards": {"mode": "off"}, "showCost": True, "web": {"connectionPool": {}}}).diagnostics == ()


@pytest.mark.parametrize(
    ("raw", "field", "value"),
    [
        ({"approvals": "aks"}, "approvals", "ask"),
        ({"approvalRules": "deny bash"}, "approval_rules", "ask"),
        ({"approvalRules": [5]}, "approval_rules", "ask"),
    ],
)
def test_doubt_about_approvals_asks(load: Any, raw: Any, field: str, value: str) -> None:
    loaded = load(raw)
    found = getattr(loaded.settings, field)
    assert (found if field == "approvals" else found[0]["action"]) == value
    assert len(loaded.diagnostics) == 1
