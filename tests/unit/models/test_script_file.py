import re
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ConfigError
from retinue.models.script import (
    Script,
    ScriptCall,
    ScriptError,
    ScriptFault,
    ScriptReply,
    ScriptText,
    ScriptThinking,
    ScriptUsage,
)
from retinue.models.script_file import FAULT_FIELDS, load_script, parse_script

TWO = Script((ScriptReply((ScriptText("a"),)), ScriptReply((ScriptText("b"),))), source="s")


@pytest.mark.parametrize(
    "text",
    [
        '{"replies": [{"text": "a"}, {"text": "b"}]}',
        '{"replies": [\n  {"text": "a"},\n  {"text": "b"}\n]}',
        '[{"text": "a"}, {"text": "b"}]',
        '\n{"text": "a"}\n\n{"text": "b"}\n',
        '{"text": "a"}\r\n{"text": "b"}',
    ],
)
def test_three_notations_mean_same(text: str) -> None:
    assert parse_script(text, source="s") == TWO
    assert parse_script(text.encode(), source="s") == TWO


def test_single_fields_have_an_order() -> None:
    reply = {"calls": [{"name": "ls"}], "text": "b", "thinking": "a"}
    blocks = (ScriptThinking("a"), ScriptText("b"), ScriptCall("ls"))
    assert parse_script([reply]).replies == (ScriptReply(blocks),)


def test_blocks_keep_their_order() -> None:
    reply = {"blocks": [{"name": "ls", "id": "x"}, {"text": "b"}, {"thinking": "a", "signature": "s"}]}
    blocks = (ScriptCall("ls", id="x"), ScriptText("b"), ScriptThinking("a", "s"))
    assert parse_script([reply]).replies[0].blocks == blocks


def test_everything_else_is_read() -> None:
    reply = {
        "usage": {"input": 1, "cacheWrite": 2},
        "stop": "length",
        "raw_stop": "pause_turn",
        "error": {"kind": "rate", "retry_after_s": 2, "times": 1},
        "delay_ms": 1.5,
        "chunk_ms": 2,
        "chunk_chars": 3,
        "fault": [{"kind": "reset", "at": {"byte": 4}, "times": 2}, {"kind": "status", "code": 500, "body": {"a": 1}}],
    }
    script = parse_script({"replies": [reply], "repeat": True})
    assert script == Script(
        (
            ScriptReply(
                usage=ScriptUsage(input=1, cache_write=2),
                stop="length",
                raw_stop="pause_turn",
                error=ScriptError("scripted failure: rate", "rate", None, 2, True, 1),
                delay_ms=1.5,
                chunk_ms=2,
                chunk_chars=3,
                faults=(
                    ScriptFault(kind="reset", at=4, times=2),
                    ScriptFault(kind="status", code=500, body='{"a":1}'),
                ),
            ),
        ),
        repeat=True,
    )


BAD: list[tuple[Any, str]] = [
    ("", "f: the script is empty; accepted: "),
    ("{oops", "f: not JSON: "),
    ('{"text": "a"}\n{"text": ', "f: line 2 is not JSON: "),
    ({"reply": []}, "f: unknown field 'reply' (did you mean 'replies'?); accepted: replies, repeat"),
    ({"repeat": True}, "f: the field 'replies' is missing; accepted: a list of replies"),
    ({"replies": 5}, "f: replies: '5' is not a list; accepted: a list of replies"),
    ([5], "f: replies[0]: '5' is not an object; accepted: an object"),
    ([{}, {"texts": "a"}], "f: replies[1]: unknown field 'texts' (did you mean 'text'?); accepted: text, thinking, "),
    ([{"text": 5}], "f: replies[0].text: '5' is not text; accepted: a string"),
    ([{"text": "a", "blocks": []}], "f: replies[0]: 'text' cannot be combined with 'blocks'; accepted: either"),
    (
        [{"blocks": [{}]}],
        "f: replies[0].blocks[0]: '{}' is not a block; accepted: an object with 'text', 'thinking' or",
    ),
    ([{"calls": [{}]}], "f: replies[0].calls[0]: the field 'name' is missing; accepted: the name of a tool"),
    ([{"calls": [{"name": "a", "arguments": []}]}], "f: replies[0].calls[0].arguments: '[]' is not an object; accep"),
    ([{"stop": "stopp"}], "f: replies[0].stop: 'stopp' is unknown (did you mean 'stop'?); accepted: stop, length, "),
    ([{"usage": {"in": 1}}], "f: replies[0].usage: unknown field 'in'; accepted: input, output, cacheR"),
    ([{"usage": {"input": 1.5}}], "f: replies[0].usage.input: '1.5' is not a valid number; accepted: a whole"),
    ([{"delay_ms": -1}], "f: replies[0].delay_ms: '-1' is not a valid number; accepted: a number from 0"),
    ([{"chunk_chars": True}], "f: replies[0].chunk_chars: 'True' is not a valid number; accepted: a whole num"),
    ([{"error": 5}], "f: replies[0].error: '5' is not an object; accepted: a text, or an object with 'message'"),
    ([{"error": {"kind": "rates"}}], "f: replies[0].error.kind: 'rates' is unknown (did you mean 'rate'?); accepted"),
    ([{"match": {"last_user": "("}}], "f: replies[0].match.last_user: '(' is not a regular expression: "),
    ([{"fault": {"at": "head"}}], "f: replies[0].fault: the field 'kind' is missing; accepted: absurd_usage, "),
    ([{"fault": {"kind": "rest"}}], "f: replies[0].fault.kind: 'rest' is unknown (did you mean 'reset'?); accepted: "),
    ([{"fault": {"kind": "bom", "at": "head"}}], "f: replies[0].fault: unknown field 'at'; accepted: kind, times"),
    ([{"fault": [{"kind": "stall", "at": "mid"}]}], "f: replies[0].fault[0].at: 'mid' is unknown"),
    ([{"fault": {"kind": "split", "sizes": 0}}], "f: replies[0].fault.sizes: '0' is not a valid number; accep"),
]


@pytest.mark.parametrize(("script", "message"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_mistakes_are_named(script: Any, message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        parse_script(script, source="f")


PAGE = Path(__file__).parents[3] / "docs/reference/scripts.md"


@pytest.mark.parametrize("example", re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
def test_documented_scripts_parse(example: str) -> None:
    assert parse_script(example).replies


def test_documented_faults_are_all() -> None:
    named = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text().partition("## Faults")[2], re.MULTILINE)
    assert {kind: tuple(re.findall(r"`(\w+)`", fields)) for kind, fields in named} == FAULT_FIELDS


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: cannot read the script: No such file"):
        load_script(tmp_path / "gone.json")


def test_bad_values_are_bounded() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_script([{"stop": "\x1b[31m" + "x" * 10_000}])
    assert len(str(caught.value)) < 300 and "\x1b" not in str(caught.value)
