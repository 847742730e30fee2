import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.errors import ToolRetry
from retinue.tools.files.difference import render_difference
from retinue.tools.files.edit import parse_edits
from retinue.tools.files.replacement import Edit, apply_edits

APPLY = """
d=$(mktemp -d) && cd "$d" && cat > f && printf "%s" "$1" | git apply -p1 --unidiff-zero - && cat f
s=$?; rm -rf "$d"; exit $s
"""
TEXTS = st.text(alphabet="ab \n\r", max_size=60)


def refuse(text: str, *edits: Edit) -> str:
    with pytest.raises(ToolRetry) as caught:
        apply_edits(text, list(edits), "f.py")
    return str(caught.value)


def test_edits_match_original_text() -> None:
    edited = apply_edits("a b c", [Edit("c", "a"), Edit("a", "c")], "f")
    assert edited.text == "c b a"


def test_repeated_text_names_lines() -> None:
    said = refuse("x = 1\ny\nx = 1\n", Edit("x = 1", "x = 2"))
    assert said == (
        "oldText is found 2 times in 'f.py', at lines 1, 3. It must be unique: add the lines around the one you mean."
    )
    assert "found 2 times" in refuse("aaa", Edit("aa", "b"))


def test_missing_text_shows_closest_lines() -> None:
    text = "import os\n\ndef area(width, height):\n    return width * height\n"
    assert refuse(text, Edit("def area(w, height):\n    return width * height", "x")) == (
        "oldText is not in 'f.py'. It must match exactly, spaces and line ends included.\n"
        "The closest text is at lines 3-4:\n"
        "- oldText: def area(w, height):\n"
        "+ line 3: def area(width, height):\n"
        "  4 |     return width * height"
    )


def test_wrong_indentation_is_shown() -> None:
    assert refuse("if x:\n\treturn 1\n", Edit("    return 1", "return 2")) == (
        "oldText is not in 'f.py'. It must match exactly, spaces and line ends included.\n"
        "Only the spaces differ from line 2:\n"
        "- oldText: ····return·1\n"
        "+ line 2: →return·1"
    )


def test_foreign_text_says_so() -> None:
    assert refuse("alpha\nbeta\n", Edit("zzzz qqqq", "x")).endswith("Nothing in the file comes close: read it again.")


def test_overlapping_edits_are_refused() -> None:
    said = refuse("one\ntwo\nthree\n", Edit("one\ntwo", "1"), Edit("two\nthree", "2"))
    assert said == "edits[0] and edits[1] overlap in 'f.py' (they begin at lines 1 and 2). Merge them into one edit."


@pytest.mark.parametrize(("old", "new", "said"), [("", "x", "is empty"), ("a", "a", "are the same")])
def test_pointless_edit_is_refused(old: str, new: str, said: str) -> None:
    assert said in refuse("a\n", Edit(old, new))


def test_typography_is_forgiven_in_place() -> None:
    text = "keep “this”  \nsay “hello” – now   \nnext ﬁle\n"
    edited = apply_edits(text, [Edit('say "hello" - now\nnext file', "done")], "f")
    assert (edited.text, edited.forgiven) == ("keep “this”  \ndone\n", [0])


def test_ambiguous_forgiveness_is_refused() -> None:
    assert "found 2 times" in refuse("“a”\n„a”\n", Edit('"a"', "b"))


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\nc\n", "b", "x\ny", "a\r\nx\ny\nc\n"),
        ("a\r\nb\nc\n", "a", "x\ny", "x\r\ny\r\nb\nc\n"),
        ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
        ("a\rb\n", "b", "c", "a\rc\n"),
        ("a\r\nb\r\n", "a\r\nb", "c\r\nd", "c\r\nd\r\n"),
    ],
)
def test_line_ends_are_kept(text: str, old: str, new: str, result: str) -> None:
    assert apply_edits(text, [Edit(old, new)], "f").text == result


@given(TEXTS, st.data(), TEXTS)
def test_rest_of_text_is_untouched(text: str, data: st.DataObject, new: str) -> None:
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))]
    try:
        edited = apply_edits(text, [Edit(old, new)], "f")
    except ToolRetry:
        return
    change = edited.changes[0]
    assert edited.text == text[: change.span.start] + change.new + text[change.span.end :]
    if not edited.forgiven:
        assert text[change.span.start : change.span.end].replace("\r\n", "\n") == old.replace("\r\n", "\n")


def test_difference_has_both_notations() -> None:
    text = "".join(f"{n}\n" for n in range(1, 31))
    edited = apply_edits(text, [Edit("\n5\n", "\nfive\nsix\n"), Edit("25\n", "")], "f")
    difference = render_difference("f", text, edited.changes)
    assert difference.first_changed_line == 5
    assert difference.diff.splitlines()[3:8] == ["  4 4", "- 5 5", "+ 5 five", "+ 6 six", "  6 6"]
    assert difference.patch.startswith("--- f\n+++ f\n@@ -1,9 +1,10 @@\n 1\n 2\n 3\n 4\n-5\n+five\n+six\n 6\n")


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30), st.booleans(), st.data())
@settings(max_examples=25, deadline=None)
def test_patch_applies_with_git(lines: list[str], closed: bool, data: st.DataObject) -> None:
    numbered = [f"{line}{index}" for index, line in enumerate(lines, 1)] or ["only"]
    text = "\n".join(numbered) + ("\n" if closed else "")
    picked = data.draw(st.lists(st.sampled_from(range(len(numbered))), min_size=1, max_size=3, unique=True))
    new = data.draw(st.sampled_from(["", "new", "x\ny", "z\n"]))
    edits = []
    for index in picked:
        tail = "\n" if data.draw(st.booleans()) and (closed or index + 1 < len(numbered)) else ""
        edits.append(Edit(numbered[index] + tail, new))
    try:
        edited = apply_edits(text, edits, "f")
    except ToolRetry:
        return
    patch = render_difference("a/f", text, edited.changes).patch
    argv = ["sh", "-c", APPLY, "sh", patch.replace("+++ a/f", "+++ b/f")]
    with_file = subprocess.run(argv, input=text.encode(), capture_output=True, check=False)
    assert with_file.returncode == 0, (with_file.stderr, patch)
    assert with_file.stdout.decode() == edited.text


def test_all_forms_of_edits_are_read() -> None:
    pair = {"oldText": "a", "newText": "b"}
    for arguments in (
        {"edits": [pair]},
        {"edits": pair},
        {"edits": '[{"oldText": "a", "newText": "b"}]'},
        {"path": "f", **pair},
    ):
        assert parse_edits(arguments) == [Edit("a", "b")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "edits is empty"),
        ({"edits": []}, "edits is empty"),
        ({"edits": "no json"}, "edits is 'no json'"),
        ({"edits": 5}, "edits is '5'"),
        ({"edits": ["x"]}, "edits[0] is 'x'"),
        ({"edits": [{"oldText": "a"}]}, "edits[0].newText is missing"),
        ({"edits": [{"oldText": None, "newText": "b"}]}, "edits[0].oldText is missing"),
        ({"edits": [{"oldText": "a", "newText": "\ud800"}]}, "edits[0].newText has a lone surrogate at character 0"),
    ],
)
def test_bad_edits_are_named(arguments: dict, said: str) -> None:
    with pytest.raises(ToolRetry) as caught:
        parse_edits(arguments)
    assert said in str(caught.value)
