import json
from pathlib import Path

import pytest

from retinue.features.hooks.points import ANYWHERE, HookSpec
from retinue.settings.hooks import load_hooks
from retinue.settings.paths import Paths

GOOD = {"name": "h", "point": "agent.turn.start", "type": "observer", "command": "true", "enabled": True}
GUARD = {"name": "g", "point": "tool.approval.pre", "type": "decision", "command": "true", "enabled": True}


@pytest.fixture
def paths(tmp_path):
    home, project = tmp_path / "home", tmp_path / "work"
    for folder in (home, project):
        (folder / ".codingcode").mkdir(parents=True)
    return Paths(project, project, home / ".pi" / "agent", home)


def write(paths, text, name="hooks.yaml", *, in_project=False):
    folder = paths.project if in_project else paths.home
    path = folder / ".codingcode" / name
    path.write_bytes(text if isinstance(text, bytes) else str(text).encode())
    return path


def load(paths, *entries, **options):
    write(paths, json.dumps({"hooks": entries}))
    return load_hooks(paths, trusted=True, **options)


def test_whole_entry_is_read(paths):
    text = """hooks:
  - name: check
    description: Looks twice
    point: tool.approval.pre
    type: decision
    command: ./check.sh
    args: [--level, 3]
    env: {MODE: strict}
    priority: 10
    enabled: true
"""
    path = write(paths, text, "hooks.yml")
    assert load_hooks(paths, trusted=True).ready == (
        HookSpec(
            name="check",
            point="tool.approval.pre",
            kind="decision",
            command="./check.sh",
            args=("--level", "3"),
            env={"MODE": "strict"},
            priority=10,
            path=str(path),
            folder=str(path.parent),
        ),
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": ""}, "hooks[0].name: found ''; expected text"),
        ({"point": "tool.execute"}, "hooks[0].point: found 'tool.execute'; expected a point such as tool.approval.pre"),
        ({"command": ["a", "b"]}, "hooks[0].command: found an array; expected text"),
        ({"args": "a b"}, "hooks[0].args: found 'a b'; expected a list of texts, one for each argument"),
        ({"args": [1.5]}, "hooks[0].args: found an array; expected a list of texts"),
        ({"env": ["A=b"]}, "hooks[0].env: found an array; expected an object of texts by the names of variables"),
        ({"env": {"A=B": "c"}}, "hooks[0].env: found an object; expected an object of texts"),
        ({"enabled": "maybe"}, "hooks[0].enabled: found 'maybe'; expected true or false"),
        ({"priority": "high"}, "hooks[0].priority: found 'high'; expected a whole number"),
        ({"shell": True}, "hooks[0].shell: unknown field"),
        ({"prioritiy": 1}, "unknown field (did you mean 'priority'?)"),
        ({"point": "session.save.before"}, "hooks at session.save.before"),
        (
            {"type": "decision"},
            "hooks[0].type: found 'decision'; expected observer, since hooks at agent.turn.start cannot decide",
        ),
    ],
)
def test_bad_fields_are_told(paths, change, told):
    loaded = load(paths, {**GOOD, **change})
    path = paths.home / ".codingcode" / "hooks.yaml"
    assert told in loaded.diagnostics[0].message
    assert loaded.diagnostics[0].message.startswith(f"{path}:1: hooks[0]")


@pytest.mark.parametrize("change", [{"name": 5}, {"command": 5}, {"args": {}}, {"enabled": "yes"}, {"type": "guard"}])
def test_bad_guard_stands_and_refuses(paths, change):
    (spec,) = load(paths, {**GUARD, **change}).ready
    (field,) = change
    assert (spec.is_guard, f"hooks.yaml:1: hooks[0].{field}: found" in spec.fault) == (True, True)


def test_bad_entry_spoils_no_other(paths):
    loaded = load(paths, "text", GOOD, {"name": "x"})
    assert [(spec.name, spec.is_guard) for spec in loaded.ready] == [("(no name)", True), ("h", False), ("x", True)]
    assert len(loaded.diagnostics) == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hooks: [", "not valid YAML"),
        ("- a\n", "expected `key: value` lines"),
        ("hooks: yes\n", "hooks: expected a list of hooks"),
        ("hooks: {a: b}\n", "hooks: expected a list of hooks"),
        ("hook:\n  - a\n", "'hook': unknown (did you mean 'hooks'?)"),
        ("hooks: !!python/object:os.system x\n", "is refused"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ("x: " + "y" * 600_000, "larger than 500000 bytes"),
        ("a: \x00", "not valid YAML"),
        ("hooks: []\nhooks: []\n", "hooks: given twice, first on line 1"),
    ],
)
def test_broken_files_are_told(paths, text, told):
    write(paths, text)
    loaded = load_hooks(paths, trusted=True)
    assert told in loaded.diagnostics[0].message
    assert {spec.point for spec in loaded.ready if spec.is_guard and spec.fault} == {ANYWHERE}


def test_broken_project_file_refuses_nothing(paths):
    write(paths, "hooks: [", in_project=True)
    loaded = load_hooks(paths, trusted=True)
    assert (loaded.found, len(loaded.diagnostics)) == ((), 1)


def test_guard_without_a_name_refuses(paths):
    (spec,) = load(paths, {key: value for key, value in GUARD.items() if key != "name"}).ready
    assert spec.is_guard and "hooks[0].name: found nothing; expected text" in spec.fault


@pytest.mark.parametrize("text", ["", "# nothing\n", "hooks:\n", "hooks: []\n"])
def test_empty_files_are_fine(paths, text):
    write(paths, text)
    assert load_hooks(paths, trusted=True).diagnostics == ()


def test_folder_is_no_file(paths):
    (paths.home / ".codingcode" / "hooks.yaml").mkdir()
    assert "is a directory; expected a regular file" in load_hooks(paths, trusted=True).diagnostics[0].message


@pytest.mark.attack("A1")
def test_project_file_stays_closed_without_trust(paths):
    write(paths, "hooks: [", in_project=True)
    assert load_hooks(paths, trusted=False).diagnostics == ()


def test_project_replaces_an_observer(paths):
    write(paths, json.dumps({"hooks": [{**GOOD, "command": "false"}]}), in_project=True)
    states = {(item.spec.is_own, item.state) for item in load(paths, GOOD).found}
    assert states == {(True, "ready"), (False, "unapproved")}


@pytest.mark.spec("codingcode:44")
@pytest.mark.parametrize(
    ("disabled", "muted", "names"),
    [
        ({"h": True}, {}, ["g"]),
        ({}, {"h": True}, ["g"]),
        ({"g": True}, {"g": False}, ["h"]),
        ({}, {"g": True}, ["h", "g"]),
    ],
)
def test_switches_are_honoured(paths, disabled, muted, names):
    loaded = load(paths, GOOD, GUARD, disabled=disabled, muted=muted)
    assert [spec.name for spec in loaded.ready] == names


def test_second_file_is_hidden(paths):
    write(paths, json.dumps({"hooks": [{**GOOD, "command": "second"}]}), "hooks.yml")
    loaded = load(paths, GOOD)
    assert [spec.command for spec in loaded.ready] == ["true"]
    assert "the one in" in loaded.diagnostics[0].message


def test_home_is_no_project(tmp_path):
    (tmp_path / ".codingcode").mkdir()
    paths = Paths(tmp_path, tmp_path, tmp_path / ".pi" / "agent", tmp_path)
    write(paths, json.dumps({"hooks": [GOOD]}))
    assert [item.spec.is_own for item in load_hooks(paths, trusted=True).found] == [True]
    assert Path(load_hooks(paths, trusted=True).ready[0].folder) == tmp_path / ".codingcode"
