import pytest

from retinue.core.run import Question
from retinue.ui.widgets.question import (
    describe_change,
    describe_size,
    find_key,
    find_letters,
    list_answers,
    render_asker,
    render_change,
    render_matter,
)
from retinue.views.call_changes import CallChange

APPROVAL = Question(id="q", run_id="r1", title="Allow bash?", options=("allow", "allow this call from now on", "deny"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf x", "rm -rf x"),
        (f"ls;{' ' * 500}rm x", "ls; ⟨500 blanks⟩ rm x"),
        (f"ls{chr(10) * 40}rm x", "ls\n⟨39 empty lines⟩\nrm x"),
        ("ls\n" + "  \n" * 10 + "rm", "ls\n⟨10 empty lines⟩\nrm"),
        ("ls \x1b[8mrm x\x1b[0m", "ls \\x1b[8mrm x\\x1b[0m"),
        ("ls \u202exr mr", "ls \\u202exr mr"),
        ("ls\u2028rm", "ls\\u2028rm"),
        ("ls\u00a0\u3000\u2800\u200brm", "ls\\xa0\\u3000\\u2800\\u200brm"),
        ("\rrm", "\\rrm"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
@pytest.mark.attack("E10")
def test_nothing_hides_in_a_question(text, shown):
    assert render_matter(text) == shown


@pytest.mark.attack("E10")
def test_long_commands_are_never_cut():
    text = "\n".join(f"echo {number}" for number in range(5000))
    assert render_matter(text) == text


def test_sizes_are_stated():
    assert [describe_size(text) for text in ("x", "ab\nc", "y" * 1234)] == [
        "1 character",
        "4 characters, 2 lines",
        "1,234 characters",
    ]


def test_letters_answer_approvals():
    again = "allow this call from now on"
    assert find_letters(APPROVAL) == {"1": "allow", "2": again, "3": "deny", "y": "allow", "n": "deny", "a": again}
    assert [find_key(APPROVAL, option) for option in APPROVAL.options] == ["y", "a", "n"]


def test_numbers_answer_choices():
    question = Question(id="q", run_id="r", title="Which?", kind="select", options=("yes", "no", "other"), default="no")
    assert find_letters(question) == {"1": "yes", "2": "no", "3": "other"}


def test_askers_are_named():
    asker = Question(id="q", run_id="r1", agent="Exp\x1b[0mlore", title="?")
    names = [render_asker(APPROVAL), render_asker(asker), render_asker(asker, "look\n\x1b[2J")]
    assert names == ["the agent", "Exp\\x1b[0mlore (run r1)", 'Exp\\x1b[0mlore "look \\x1b[2J"']


def test_denial_can_have_a_reason():
    question = Question(id="q", run_id="r", title="?", reason_for="deny")
    assert list_answers(question) == ("allow", "deny", "deny, and say why")
    assert [find_key(question, option) for option in list_answers(question)] == ["y", "n", "r"]


@pytest.mark.attack("E10")
def test_diff_hides_nothing():
    change = CallChange("a\x1b[2J", ("+1 x\x1b[8m", "-1 \u202ey"), added=1, removed=1, hidden=3)
    shown = render_change(change, "all \x1b[2J", {})
    assert shown.plain == "+1 x\\x1b[8m\n-1 \\u202ey\n⟨3 more lines in the diff; the whole call:⟩\nall \\x1b[2J"
    assert describe_change(change) == "a\\x1b[2J  +1 -1"
