import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.definitions.document import find_fault, find_skeleton, fold_name, normalize_name, suggest_name

GOOD = ["a", "Explore", "code-reviewer", "a.b_c-1", "9lives", "x" * 128, "评审", "é", "a_"]
BAD = [
    *("", ".", "..", "...", "a/b", "a\\b", "/etc", "../x", "-a", ".a", "_a", "a.", "a b", " a", "a ", "a\nb", "a\0b"),
    *("🚀", "a🚀", "\u202ea", "a\u200bb", "x" * 129, "%2e%2e", "con", "CON", "con.txt", "nul", "com1", "main", "all"),
    *("none", "a:b", "a*", "a?", "a|b", "$HOME", "~", "~a", "a\x1b[31m", "\ufeffa", "\ud800", "e\u0301", "a'b", 'a"b'),
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_pass(name: str) -> None:
    assert find_fault(name) == ""


@pytest.mark.attack("C11")
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_bad_names_are_refused(name: str) -> None:
    assert find_fault(name) != ""


@pytest.mark.attack("C11")
@given(st.text(max_size=140))
def test_passed_names_are_safe_paths(name: str) -> None:
    if not find_fault(name):
        assert not set(name) & set('/\\:*?"<>|\0\n\r\t ') and name not in (".", "..")
        assert name[0] not in ".-" and name[-1] != "." and 0 < len(name) <= 128
        assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in name)


def test_composed_and_decomposed_are_one() -> None:
    assert normalize_name("cafe\u0301") == "caf\u00e9"
    assert fold_name("CAFE\u0301") == fold_name("caf\u00e9")


@pytest.mark.parametrize(
    "pair", [("scope", "sсope"), ("tool", "too1"), ("Plan", "P1an"), ("go", "g0"), ("ｒeview", "review")]
)
def test_look_alikes_share_skeleton(pair: tuple[str, str]) -> None:
    assert find_skeleton(pair[0]) == find_skeleton(pair[1])


def test_different_names_do_not() -> None:
    names = ["explorer", "explore", "plan", "planner", "tester", "text"]
    assert len({find_skeleton(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("text", "name"), [("Code Reviewer", "code-reviewer"), ("../../x", "x"), ("🚀", ""), ("con", "")]
)
def test_names_are_suggested(text: str, name: str) -> None:
    assert suggest_name(text) == name
