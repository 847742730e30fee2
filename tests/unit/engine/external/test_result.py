import pytest

from retinue.core.messages import Cost, Usage
from retinue.core.run import Finalized
from retinue.engine.external.result import ProcessReport, read_finalized, read_usage
from tests.fake_child import reply


def fold(*records: dict) -> ProcessReport:
    report = ProcessReport()
    for record in records:
        report.add(record.get("record", record))
    return report


@pytest.mark.spec("devkit:31")
@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([reply("a"), reply("b", stop="toolUse")], "a"),
        ([reply("a"), reply("b")], "b"),
        ([reply("a"), reply("", stop="stop")], "a"),
        ([{"type": "message", **reply("a")["record"], "type ": 1}], "a"),
        ([{"type": "result", "output": "r"}], "r"),
        ([reply("a"), {"type": "result", "output": "r"}], "a"),
        ([reply("a", stop="toolUse")], "a"),
        ([reply("the stream error again", stop="")], "the stream error again"),
        ([reply("fine", stop=""), reply("the stream error again", stop="")], "fine"),
        ([{"type": "error", "error": {"code": "E1", "message": "broke"}}], "E1: broke"),
        ([{"type": "error", "message": "network error"}], "network error"),
        ([reply(stop="error", errorMessage="overloaded")], "overloaded"),
    ],
)
def test_answer_is_found_backwards(records, text):
    assert fold(*records).render("") == text


def test_thinking_is_no_answer():
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": " b "}]
    assert fold(reply(content=content)).render("") == "a\n b"


def test_words_of_tools_are_no_errors():
    message = {"role": "toolResult", "content": [{"type": "text", "text": "ECONNRESET"}]}
    report = fold({"type": "message_end", "message": message})
    assert (report.error, report.is_broken) == ("", False)


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        ([reply("a")], False),
        ([reply(stop="error", errorMessage="x"), reply("a")], False),
        ([reply("a"), reply(stop="error", errorMessage="x")], True),
        ([reply("a", stop="aborted")], True),
        ([{"type": "error", "error": "x"}], True),
        ([], False),
    ],
)
def test_last_reply_decides_about_failure(records, broken):
    assert fold(*records).is_broken is broken


@pytest.mark.spec("devkit:34")
@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, None),
        ("many", None),
        ({}, Usage()),
        ({"input": 1, "output": 2, "cost": 0.5}, Usage(1, 2, 0, 0, 3, Cost(total=0.5))),
        (
            {"input": 1, "totalTokens": 9, "cost": {"input": 0.1, "total": 0.2}},
            Usage(1, 0, 0, 0, 9, Cost(0.1, total=0.2)),
        ),
        ({"input": -5, "output": True, "cacheRead": 1e300, "cost": "much"}, Usage()),
    ],
)
def test_usage_is_read_in_any_form(raw, usage):
    assert read_usage(raw) == usage


@pytest.mark.parametrize(
    ("arguments", "finalized"),
    [
        ({"status": "SUCCESS", "result": "r"}, Finalized("SUCCESS", "r")),
        ({"status": "ERROR", "error": "e", "result": "half"}, Finalized("ERROR", "half", "e")),
        ({"status": "SUCCESS", "result": " ", "error": "e"}, None),
        ({"status": "ERROR", "result": "r"}, None),
        ({"status": "done", "result": "r"}, None),
        ({"status": "SUCCESS", "result": 5}, None),
        ("SUCCESS", None),
    ],
)
def test_finalisation_must_be_valid(arguments, finalized):
    assert read_finalized(arguments) == finalized


@pytest.mark.spec("devkit:32")
def test_nothing_said_is_described():
    assert ProcessReport().render("") == "(the child ended without output)"
    assert ProcessReport().render("plain") == "plain"


def test_missing_answer_names_the_last_event():
    assert fold().render("") == "(the child ended without output)"
    told = fold({"type": "agent_start"}, {"type": "tool_execution_end"}).render("")
    assert told == (
        "(the child gave no final answer: its last event was tool_execution_end, and 1 tool executions were completed)"
    )
