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
    ("", "f: the script is empty; see docs/reference/scripts.md"),
    ("{oops", "f: not JSON: "),
    ('{"text": "a"}\n{"text": ', "f: line 2 is not JSON: "),
    ({"reply": []}, "f: script: Object contains unknown field `reply`; see docs/reference/scripts.md"),
    ({"repeat": True}, "f: script: Object missing required field `replies`"),
    ({"replies": 5}, "f: script.replies: Expected `array`, got `int`"),
    ([5], "f: script.replies[0]: Expected `object`, got `int`"),
    ([{}, {"texts": "a"}], "f: replies[1]: Object contains unknown field `texts`"),
    ([{"text": 5}], "f: replies[0].text: Expected `str | null`, got `int`"),
    ([{"text": "a", "blocks": []}], "f: replies[0]: 'blocks' cannot be combined with 'text', "),
    ([{"blocks": [{}]}], "f: replies[0]: each block needs 'text', 'thinking' or 'name'"),
    ([{"calls": [{}]}], "f: replies[0].calls[0]: Object missing required field `name`"),
    ([{"stop": "stopp"}], "f: replies[0].stop: Invalid enum value 'stopp'"),
    ([{"usage": {"input": 1.5}}], "f: replies[0].usage.input: Expected `int`, got `float`"),
    ([{"delay_ms": -1}], "f: replies[0].delay_ms: Expected `float` >= 0.0"),
    ([{"error": {"kind": "rates"}}], "f: replies[0].error.kind: Invalid enum value 'rates'"),
    ([{"match": {"last_user": "("}}], "f: replies[0].match: not a regular expression: "),
    ([{"fault": {"at": "head"}}], "f: replies[0].fault[0]: Object missing required field `kind`"),
    ([{"fault": {"kind": "rest"}}], "f: replies[0].fault[0]: unknown kind 'rest'; choose one of: absurd_usage, "),
    ([{"fault": {"kind": "bom", "at": "head"}}], "f: replies[0].fault[0]: bom has no field 'at'"),
    ([{"fault": [{"kind": "split", "sizes": 0}]}], "f: replies[0].fault[0].sizes: Expected `int` >= 1"),
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
