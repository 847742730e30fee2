import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import ConfigError, UsageError
from retinue.definitions.discover import PARSERS
from retinue.definitions.edit import (
    change_file,
    delete_definition,
    render_definition,
    render_value,
    set_enabled,
    set_field,
    write_definition,
)
from retinue.definitions.frontmatter import Scalar, parse_block
from tests.unit.definitions.parsing import read

FILE = (
    b"---\n# who\nname: a   # the name\ntools:\n  - read\n  # and\n  - grep\n\n"
    b"# how\nmodel: 'x: y'\n---\n\nBody  \n---\nend"
)
MAC = FILE.replace(b"\n", b"\r")
WINDOWS = b"\xef\xbb\xbf" + FILE.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("enabled", False, b"---\n\nBody", b"enabled: false\n---\n\nBody"),
        ("name", "b", b"name: a   # the name\n", b"name: b   # the name\n"),
        ("tools", "read", b"tools:\n  - read\n  # and\n  - grep\n", b"tools: read\n"),
        ("tools", None, b"tools:\n  - read\n  # and\n  - grep\n", b""),
        ("model", "z", b"model: 'x: y'\n", b"model: z\n"),
        ("model", None, b"model: 'x: y'\n", b""),
        ("name", None, b"name: a   # the name\n", b""),
        ("absent", None, b"", b""),
    ],
)
def test_one_field_changes_nothing_else(newline: bytes, key: str, value: object, old: bytes, new: bytes) -> None:
    expected = FILE.replace(old, new, 1).replace(b"\n", newline)
    assert set_field(FILE.replace(b"\n", newline), key, value) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [FILE, WINDOWS, MAC])
def test_setting_and_removing_restores(data: bytes) -> None:
    assert set_field(set_field(data, "enabled", False), "enabled", None) == data


@pytest.mark.parametrize(
    "data",
    [
        b"---\n{name: a, tools: read}\n---\nx",
        b"---\nname: a\nname: b\n---\nx",
        b"---\nname: [a\n---\nx",
        b"no frontmatter",
        b"---\nname: \xff\n---\n",
    ],
)
def test_what_cannot_be_edited_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"by hand|frontmatter|UTF-8"):
        set_field(data, "name", "c")


@given(st.text(max_size=30))
def test_values_come_back_as_written(text: str) -> None:
    value = parse_block(f"---\na: {render_value(text)}\n---\n").entries[0].value
    assert isinstance(value, Scalar) and value.text == text and not value.is_null


@given(st.lists(st.sampled_from(["read", "ext:mcp/x", "*", "no", "a b", "true", "mcp__a__b"]), max_size=4))
def test_lists_come_back_as_written(names: list[str]) -> None:
    value = parse_block(f"---\na: {render_value(names)}\n---\n").entries[0].value
    assert [item.text for item in value.values] == names  # type: ignore[union-attr]


def test_switches_go_off_and_on(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(WINDOWS)
    path.chmod(0o640)
    states = []
    for enabled in (False, False, True):
        definition = PARSERS["pi"](path.read_bytes().decode(), str(path), "user")[0]
        assert definition is not None
        set_enabled(definition, enabled=enabled)
        again = PARSERS["pi"](path.read_bytes().decode(), str(path), "user")[0]
        states.append(again is not None and again.enabled)
    assert (states, path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == ([False, False, True], WINDOWS, 0o640)
    assert os.listdir(tmp_path) == ["a.md"]


def test_codingcode_is_switched_its_way(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("---\nname: a\ndescription: b\n---\nx")
    definition = PARSERS["codingcode"](path.read_bytes().decode(), str(path), "user")[0]
    assert definition is not None
    set_enabled(definition, enabled=False)
    assert path.read_text() == "---\nname: a\ndescription: b\ndisabled: true\n---\nx"


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_bytes(FILE)
    (tmp_path / "a.md").symlink_to("real.md")
    change_file(str(tmp_path / "a.md"), {"model": None})
    assert (tmp_path / "a.md").is_symlink() and b"model" not in (tmp_path / "real.md").read_bytes()


def test_new_file_is_written(tmp_path: Path) -> None:
    text = render_definition({"name": "a-b", "description": "x: y", "tools": ["read"], "model": None}, "Do it.\n")
    path = Path(write_definition(str(tmp_path / "new" / "agents"), "a-b", text))
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (
        '---\nname: a-b\ndescription: "x: y"\ntools: [read]\n---\n\nDo it.\n',
        0o644,
    )
    assert os.listdir(path.parent) == ["a-b.md"]


@pytest.mark.parametrize("taken", ["a.md", "A.md"])
def test_nothing_is_overwritten(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_definition(str(tmp_path), "a", "new")
    assert ((tmp_path / taken).read_text(), os.listdir(tmp_path)) == ("mine", [taken])


@pytest.mark.attack("C11")
@pytest.mark.parametrize("name", ["../x", "a/b", "", "con", ".x", "x" * 129, "a\0b", "a b"])
def test_names_are_checked_before_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="the name"):
        write_definition(str(tmp_path / "agents"), name, "x")
    assert os.listdir(tmp_path) == []


def test_packaged_agents_are_not_touched() -> None:
    builtin = read("name: a", source="builtin")
    with pytest.raises(UsageError, match="eject"):
        set_enabled(builtin, enabled=False)
    with pytest.raises(UsageError, match="is built in"):
        delete_definition(builtin)


def test_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(FILE)
    definition = PARSERS["pi"](path.read_bytes().decode(), str(path), "user")[0]
    assert definition is not None
    delete_definition(definition)
    with pytest.raises(ConfigError, match="cannot be deleted"):
        delete_definition(definition)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(FILE)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            change_file(str(tmp_path / "a.md"), {"model": None})
    finally:
        tmp_path.chmod(0o755)
