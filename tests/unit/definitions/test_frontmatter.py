import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retinue.definitions import yaml as own_yaml
from retinue.definitions.frontmatter import (
    BlockError,
    FrontmatterBlock,
    Items,
    Scalar,
    YamlTable,
    _read_plain,
    parse_block,
    split_fences,
)


def values(text: str) -> dict[str, object]:
    return {entry.key: entry.value for entry in parse_block(text).entries}


def fault(text: str, fences: str = "pi") -> tuple[str, int | None, str]:
    with pytest.raises(BlockError) as caught:
        parse_block(text, fences)  # type: ignore[arg-type]
    return str(caught.value), caught.value.line, caught.value.code


@pytest.mark.spec("fleet:B31")
@pytest.mark.parametrize("change", [("\n", "\r\n"), ("\n", "\r"), ("---\nname", "\ufeff---\nname")])
def test_line_endings_and_mark_vanish(change: tuple[str, str]) -> None:
    text = "---\nname: a\ntools:\n  - read\n---\n\nbody\nmore\n"
    assert parse_block(text.replace(*change, -1 if change[0] == "\n" else 1)) == parse_block(text)


def test_leading_space_is_skipped() -> None:
    assert parse_block("\n \n---\nname: a\n---\nb").entries[0].line == 4


@pytest.mark.parametrize("closing", ["---", "----", "---foo", "--- # x"])
def test_pi_closes_at_first_dashes(closing: str) -> None:
    yaml, _, body, _ = split_fences(f"---\nname: a\n{closing}\nbody")
    assert (yaml, body) == ("name: a", f"{closing[3:].strip()}\nbody".strip())


def test_lines_close_exactly() -> None:
    fenced = split_fences("---\nname: a\n---foo: b\n---\nbody\n---\nrest", "lines")
    assert fenced == ("name: a\n---foo: b", 2, "body\n---\nrest", 5)


def test_fences_in_body_stay() -> None:
    assert parse_block("---\nname: a\n---\nbody\n---\nmore\n").body == "body\n---\nmore"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "no-frontmatter"),
        (" \n\t", "no-frontmatter"),
        ("# README\n", "no-frontmatter"),
        ("---", "unclosed"),
        ("---\nname: a\n", "unclosed"),
        ("---\n---\nbody", "no-frontmatter"),
        ("--- a\nname: b\n---\n", "no-frontmatter"),
        ("---\nname: a\n\tb: c\n---\n", "yaml"),
        ("---\n\tname: a\n---\n", "yaml"),
        ("---\ntools: [read, bash\n---\n", "yaml"),
        ("---\nname: 'a\n---\n", "yaml"),
        ("---\n- a\n- b\n---\n", "yaml"),
        ("---\njust text\n---\n", "yaml"),
        ("---\nname: a\n...\nname: b\n---\n", "yaml"),
        ("---\n? [a]\n: b\n---\n", "yaml"),
        ("---\na: &x {tools: read}\n<<: *x\n---\n", "yaml"),
        ("---\nname: *nothing\n---\n", "yaml"),
        ("---\nname: !!python/object/apply:os.system [id]\n---\n", "yaml"),
        ("---\nname: !!python/name:os.system\n---\n", "yaml"),
        ("---\nname: !Foo bar\n---\n", "yaml"),
        ("---\nname: a\x07b\n---\n", "yaml"),
        ("---\na: " + "[" * 1000 + "]" * 1000 + "\n---\n", "yaml"),
        ("---\na: " + "- " * 1000 + "\n---\n", "yaml"),
        ("---\nname: " + "x" * 70_000 + "\n---\n", "too-large"),
    ],
    ids=range(24),
)
def test_bad_blocks_are_told(text: str, code: str) -> None:
    message, _, found = fault(text)
    assert (found, message != "", len(message) < 200) == (code, True, True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tools: [read, bash\nmodel: x", 4),
        ("model: 'x\ntools: a", 4),
        ("model: x\ntools: a: b", 5),
        ("a: b\n\tc: d", 5),
    ],
)
def test_fault_names_its_line(text: str, line: int) -> None:
    assert fault(f"\n---\nname: a\n{text}\n---\n")[1] == line


def test_every_field_has_line() -> None:
    block = parse_block("---\n# note\nname: a\ntools:\n  - read\n\nmodel: >\n  b\n---\n\n\nbody")
    assert ({entry.key: entry.line for entry in block.entries}, block.body_line) == (
        {"name": 3, "tools": 4, "model": 7},
        12,
    )


@pytest.mark.spec("fleet:B22")
@pytest.mark.parametrize("text", ["off", "on", "yes", "no", "010", "00123", "12:30:45", "2024-01-02", "1_000", "0x1F"])
def test_scalars_keep_their_text(text: str) -> None:
    assert values(f"---\na: {text}\nb: [{text}]\nc: |\n  x\n---\n")["a"] == Scalar(text, 2)


def test_quotes_blocks_and_tags_mean_text() -> None:
    text = "---\na: \"true\"\nb: 'true'\nc: !!str true\nd: |\n  true\ne: !!bool true\n---\n"
    assert {key: (value.text.strip(), value.is_quoted) for key, value in values(text).items()} == {  # type: ignore[attr-defined]
        **dict.fromkeys("abcd", ("true", True)),
        "e": ("true", False),
    }


def test_groups_keep_their_shape() -> None:
    found = values("---\na: {b: [c, 'd']}\n---\n")["a"]
    assert found == YamlTable({"b": Items((Scalar("c", 2), Scalar("d", 2, is_quoted=True)), 2)}, 2)


def test_alias_bomb_is_harmless() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    block = parse_block(f"---\nl0: &l0 x\n{levels}name: a\n---\n")
    assert len(block.entries) == 11


def test_repeated_keys_are_kept() -> None:
    assert [entry.line for entry in parse_block("---\na: b\na: c\n---\n").entries] == [2, 3]


@pytest.mark.spec("devkit:19")
def test_description_with_colon_survives() -> None:
    block = parse_block("---\nname: a\ndescription: Use when: it's late # now\n---\n")
    assert (block.entries[1].value, [note.line for note in block.notes]) == (
        Scalar("Use when: it's late # now", 3, is_quoted=True),
        [3],
    )


def test_other_fields_with_colon_do_not() -> None:
    assert fault("---\nname: a\ntools: read: bash\n---\n")[2] == "yaml"


PIECES = st.sampled_from(
    [
        "a",
        "B9",
        "_x",
        "-",
        ":",
        " ",
        "#",
        "'",
        '"',
        "[",
        "]",
        ",",
        "~",
        "/",
        ".",
        "é",
        "…",
        "{",
        "&",
        "*",
        "!",
        "|",
        ">",
    ]
)
LINES = st.one_of(
    st.builds(
        "{}: {}".format, st.sampled_from(["name", "tools", "a-b", "x_1"]), st.lists(PIECES, max_size=8).map("".join)
    ),
    st.sampled_from(["", "# note", "key:", "  - read", "- read", "  more", "a: b # c", "a: [b, c]", 'a: ["b", c ]']),
    st.text(max_size=12).filter(lambda text: "\n" not in text and "\r" not in text),
)


@given(st.lists(LINES, min_size=1, max_size=5).map("\n".join))
@example("a: b\n c")
@example("a: .")
@example("a:  [ ]  ")
@example("tools:\n# x\n- a")
def test_plain_lines_read_as_yaml(text: str) -> None:
    quick = _read_plain(text, 2)
    if quick is not None:
        assert quick == own_yaml._Builder(2).read(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        block = parse_block(f"---\n{text}\n---\nbody")
    except BlockError as error:
        assert str(error)
    else:
        assert isinstance(block, FrontmatterBlock)


def test_plain_lines_need_no_yaml() -> None:
    text = '---\nname: a\ntools: ["read", grep]\nreadonly: true\n# note\ndescription: "x: y"\n---\nbody'
    assert _read_plain(re.sub(r"(?s)^---\n|\n---\n.*", "", text), 2) == parse_block(text).entries
