import pytest

from retinue.core.model import ToolSpec
from retinue.models.offline.delegation import can_delegate, describe, split_work
from retinue.models.offline.question import Kind, parse_question, parse_questions

AGENT = ToolSpec("Agent", "Types:\n- Explore: searches", {})
RESULT = ToolSpec("get_subagent_result", "", {})


def prompts(text):
    return split_work(text, parse_questions(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Where are sessions written to disk, and what happens when a write fails?",
            [
                "Where are sessions written to disk?",
                "What happens when a write fails? (This is about sessions.)",
            ],
        ),
        (
            "How does Shelf work, where is the limit configured and who calls save_items?",
            [
                "How does Shelf work?",
                "Where is the limit configured? (This is about Shelf.)",
                "Who calls save_items?",
            ],
        ),
        (
            "Who calls parse and where is it defined?",
            ["Who calls parse?", "Where is it defined? (This is about `parse`.)"],
        ),
        (
            "Where are sessions written, and who calls the event bus?",
            ["Where are sessions written?", "Who calls the event bus?"],
        ),
        ("Compare TinShelf with the WoodShelf.", ["How does TinShelf work?", "How does WoodShelf work?"]),
        ("what's the difference between a Run and a Job?", ["How does a Run work?", "How does a Job work?"]),
    ],
)
def test_parts_become_prompts_of_their_own(text, expected):
    assert prompts(text) == expected


def test_whole_project_has_four_sides():
    kinds = [parse_question(prompt).kind for prompt in prompts("Please review the whole project")]

    assert kinds == [Kind.OVERVIEW, Kind.FACT, Kind.RUN, Kind.FACT]


@pytest.mark.parametrize(
    "text",
    [
        "Where is the inbox?",
        "How does the retry work?",
        "Where is the class, which writes sessions?",
        "What does this project do?",
        "What does this project do and how do I run it?",
        "Fix the parser and how does it work?",
        "hello",
        "",
    ],
)
def test_simple_questions_stay_whole(text):
    assert prompts(text) == []


def test_many_parts_make_five():
    text = " and ".join(f"where is name_{number}" for number in range(9))

    assert [len(prompts(text)), prompts(text)[3]] == [5, "Where is name_3?"]


def test_topic_of_a_prompt_is_understood():
    question = parse_question("What happens when a write fails? (This is about sessions.)")

    assert question.text == "What happens when a write fails?"
    assert [(concept.word, concept.weight) for concept in question.concepts] == [
        ("write", 1.0),
        ("fails", 1.0),
        ("sessions", 2.0),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "symbols"),
    [
        ("Who calls it? (This is about Session.)", Kind.USES, ("Session",)),
        ("Where is it defined? (This is about `save_items`.)", Kind.WHERE, ("save_items",)),
    ],
)
def test_topic_says_what_it_means(text, kind, symbols):
    question = parse_question(text)

    assert (question.kind, question.symbols) == (kind, symbols)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([AGENT, RESULT], True),
        ([AGENT], False),
        ([RESULT], False),
        ([ToolSpec("Agent", "Types:\n- Plan: plans", {}), RESULT], False),
    ],
)
def test_delegation_needs_both_tools_and_the_agent(tools, expected):
    assert can_delegate(tools) is expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where are sessions written to disk?", "Find sessions written disk"),
        ("How does Session work?", "Trace Session in code"),
        ("Who calls parse_header?", "Find uses of parse_header"),
        ("How do I run the tests?", "Find the commands"),
    ],
)
def test_description_is_short(text, words):
    assert describe(parse_question(text)) == words
