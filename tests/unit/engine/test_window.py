from typing import Any

import pytest

from retinue.core.model import ModelInfo, ToolSpec
from retinue.engine.window import (
    BOUND_TOKENS,
    LEAST_TOKENS,
    SMALL_TOKENS,
    FittedSpecs,
    RunWindow,
    bound_result,
    count_head,
    explain_lack,
    explain_length,
    fit_sections,
    fit_specs,
    read_limit,
)

INFO = ModelInfo("p", "m", "own", "M", context_window=8192)


def make_spec(name: str, description: str = "d", **fields: object) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", **fields})


def test_large_window_gets_everything() -> None:
    sections = {"tools": "t", "project_context": "x" * 100_000}
    specs = [make_spec(f"tool{number}", "d" * 5000) for number in range(50)]
    assert (fit_sections(sections, SMALL_TOKENS).sections, fit_specs(specs, SMALL_TOKENS)) == (sections, specs)
    assert (bound_result(BOUND_TOKENS, 400_000), bound_result(BOUND_TOKENS - 4, 400_000)) == (400_000, 65_532)


def test_small_window_cuts_what_others_wrote() -> None:
    sections = {"preamble": "p" * 9000, "tools": "t", "skills": "s", "project_context": "x" * 5000, "parent": "y" * 10}
    head = fit_sections(sections, 4096)
    cut = "x" * 2048 + "\n[truncated after 2048 of 5000 characters: the context window is small]"
    # Nothing is left for the second.
    assert head.sections == {"preamble": "p" * 9000, "project_context": cut}
    assert head.left_out == ("skills", "project_context", "parent")


def test_small_window_keeps_what_fits() -> None:
    sections = {"project_context": "x" * 2000, "parent": "y" * 48, "addendum": "z"}
    head = fit_sections(sections, 4096)
    assert (head.sections, head.left_out) == ({"project_context": "x" * 2000, "parent": "y" * 48}, ("addendum",))


def test_essential_tools_are_offered_first() -> None:
    specs = [make_spec("grep", "g" * 200), make_spec("read", "One. " * 60 + "\n\nMore."), make_spec("find", "f" * 200)]
    offered = fit_specs(specs, 1100)
    assert [spec.name for spec in offered] == ["grep", "read"]
    assert (len(offered[1].description) <= 240, offered[1].description.endswith("One.")) == (True, True)


def test_other_tools_are_offered_while_there_is_room() -> None:
    specs = [make_spec(name, "d" * 94) for name in ("grep", "find", "read")]
    # Each has 4 characters of name, 94 of description and 17 of parameters.
    assert count_head("p" * 7, specs) == (7 + 3 * 115) // 4
    offered = [[spec.name for spec in fit_specs(specs, window)] for window in (689, 690, 691)]
    assert offered == [["grep", "read"], ["grep", "find", "read"], ["grep", "find", "read"]]


class OfferedTool:
    def __init__(self, description: str) -> None:
        self.spec = make_spec("tool", description)


def test_only_tools_with_secrets_are_copied() -> None:
    tools: dict[str, Any] = {"plain": OfferedTool("plain"), "other": OfferedTool("a secret")}
    sizes = [tool.spec.size for tool in tools.values()]
    plain, other = FittedSpecs(tools, lambda text: text.replace("secret", "****"), SMALL_TOKENS)()
    assert plain is tools["plain"].spec
    assert (other.description, [plain.size, other.size]) == ("a ****", [sizes[0], sizes[1] - 2])


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("x" * 240, "x" * 240),
        ("x" * 241, "x" * 240 + "…"),
        (". " + "x" * 300, ". " + "x" * 238 + "…"),
        ("a. " + "x" * 300, "a."),
        ("One; two. " + "x" * 300, "One; two."),
    ],
)
def test_long_description_ends_with_a_sentence(text: str, short: str) -> None:
    (spec,) = fit_specs([make_spec("read", text)], 8192)
    assert spec.description == short


def test_long_descriptions_of_fields_go() -> None:
    long = {"description": "x" * 61}
    fields = {"description": {"type": "string", "description": "x" * 60}, "b": long, "c": {"anyOf": [long, {}]}}
    (spec,) = fit_specs([make_spec("read", properties=fields)], 8192)
    assert spec.parameters["properties"] == {"description": fields["description"], "b": {}, "c": {"anyOf": [{}, {}]}}


@pytest.mark.parametrize(
    ("window", "head_tokens", "needed"),
    [
        (LEAST_TOKENS, 100, None),
        (LEAST_TOKENS - 1, 100, 4096),
        (8192, 6143, None),
        (8192, 6144, 8192),
        (SMALL_TOKENS, SMALL_TOKENS - 1, None),
        (SMALL_TOKENS, SMALL_TOKENS, 21_845),
    ],
)
def test_window_must_hold_more_than_the_head(window: int, head_tokens: int, needed: int | None) -> None:
    text = explain_lack(INFO, window, head_tokens)
    assert (f"needs at least {needed}:" in text) if needed else text == ""


def test_message_must_fit_beside_the_head() -> None:
    assert explain_length(INFO, 1000, 400, 3605) == ""
    assert explain_length(INFO, 1000, 400, 3606).startswith("the message has 601 tokens or more, and p/m takes 1000 ")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("This model's maximum context length is 8192 tokens", 8192),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("the server is busy", None),
    ],
)
def test_limit_is_read_from_a_refusal(words: str, limit: int | None) -> None:
    assert read_limit(words) == limit


def test_only_a_smaller_limit_is_learnt() -> None:
    told: list[str] = []
    window = RunWindow(lambda: INFO, told.append)
    limits = ["too long", "maximum context length is 8192 tokens", "maximum context length is 4096 tokens"]
    assert [window.learn(words) for words in limits] == [False, False, True]
    assert (window.tokens, window.output_tokens, len(told)) == (4096, 1024, 1)
    assert told[0].startswith("p/m accepts 4096 tokens, not 8192")
