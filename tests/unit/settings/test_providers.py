import json
import os
from pathlib import Path

import pytest

from retinue.core.errors import ModelError
from retinue.models.resolve import RequestedModel
from retinue.settings.paths import find_paths
from retinue.settings.providers import is_local_allowed, load_registry

MINE = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "$MINE", "models": [{"id": "m"}]}


@pytest.fixture
def load(tmp_path: Path, agent_dir: Path):
    def run(models: str = "", auth: str = "", mode: int = 0o600, **options: object):
        for name, text in (("models.json", models), ("auth.json", auth)):
            if text:
                (agent_dir / name).write_text(text)
                (agent_dir / name).chmod(mode)
        return load_registry(find_paths(tmp_path, os.environ), os.environ, **options)

    return run


def test_no_files_and_keys_mean_offline(load) -> None:
    registry, diagnostics = load()
    assert (registry.choose(RequestedModel()).info.ref, diagnostics) == ("offline/rules", [])
    assert registry.unlock(registry.choose(RequestedModel()).info)[1] == ""


def test_files_make_models_usable(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "k1")
    models = "// mine\n" + json.dumps({"providers": {"mine": MINE}})
    registry, diagnostics = load(models, '{"groq": {"type": "api_key", "key": "k2"}}')
    assert diagnostics == []
    assert {model.provider for model in registry.candidates} == {"groq", "mine", "offline"}
    assert registry.unlock(registry.resolve("mine/m").info)[1] == "k1"
    assert registry.candidates[-1].ref == "offline/rules"


def test_environment_beats_stored_keys(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    registry, _ = load(auth='{"anthropic": {"type": "api_key", "key": "k2"}}')
    assert registry.choose(RequestedModel()).info.provider == "google"


def test_flag_key_stays_with_one_provider(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "env")
    registry, _ = load(api_key="flag")
    with pytest.raises(ModelError, match="--api-key needs --model or --provider"):
        registry.choose(RequestedModel())
    info = registry.choose(RequestedModel(provider="mistral")).info
    assert registry.unlock(info)[1] == "flag"
    assert {model.provider for model in registry.candidates} == {"mistral", "groq", "offline"}
    assert registry.unlock(registry.resolve("groq/gpt-oss-120b").info)[1] == "env"


def test_open_auth_file_is_warned_of(load, agent_dir: Path) -> None:
    _, [warning] = load(auth="{}", mode=0o644)
    path = agent_dir / "auth.json"
    assert (warning.severity, warning.message) == (
        "warning",
        f"{path}: other users can read or write it (mode 0644); run chmod 600 {path}",
    )


def test_broken_files_disable_only_themselves(load) -> None:
    registry, diagnostics = load("{", "[]")
    assert len(diagnostics) == 2
    assert registry.resolve("offline/rules").info.ref == "offline/rules"


def test_list_has_the_shape_of_the_contract(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "k")
    registry, _ = load(json.dumps({"providers": {"mine": MINE}}))
    listed = registry.list_models("mine/m")
    assert listed["models"][:2] == [
        {
            "provider": "mine",
            "id": "m",
            "name": "m",
            "api": "openai-completions",
            "contextWindow": 128_000,
            "available": True,
        },
        {
            "provider": "offline",
            "id": "rules",
            "name": "Offline rules (no language model)",
            "api": "offline",
            "contextWindow": 1_000_000,
            "available": True,
        },
    ]
    assert listed["default"] == "mine/m"
    assert [row["available"] for row in listed["models"]].count(True) == 2


@pytest.mark.parametrize(
    ("environment", "offline", "allowed"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"PI_OFFLINE": "1"}, False, False),
        ({"PI_OFFLINE": "0"}, False, True),
        ({"RETINUE_NO_LOCAL": "1"}, False, False),
    ],
)
def test_local_servers_can_be_left_alone(environment: dict[str, str], offline: bool, allowed: bool) -> None:
    assert is_local_allowed(environment, offline=offline) is allowed
