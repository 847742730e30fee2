"""What a run with a small window is given: a short prompt, short descriptions, fewer tools, shorter results. Pure.

Above the limits everything stays as it is. Must not know where the parts come from.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from retinue.core.jsonline import encode_json
from retinue.core.model import ModelInfo, ToolSpec
from retinue.sessions.compaction import CHARS_PER_TOKEN

LEAST_TOKENS = 4_096
"""No agent works in a smaller window."""
SMALL_TOKENS = 16_384
"""Below this, prompt and tool list are short."""
BOUND_TOKENS = 65_536
"""Below this, one result takes a quarter of the window at most."""
ESSENTIAL = ("read", "bash", "edit", "write", "Agent")
"""Tools that are always offered to a run that has them; others as long as there is room."""
_LEFT_OUT = ("tools", "rules", "skills", "subagents", "delegation")
"""Sections of a prompt that only advise."""
_CUT = ("project_context", "parent", "addendum")
"""Sections that are cut to what room there is."""
_TOLD = re.compile(
    r"(?i)(?:context (?:length|size|window)|prompt length|maximum number of tokens allowed|tokens >)(?: is| of)?"
    r"\D{0,12}(\d{3,8})"
)
"""How servers say what they take when a request was too long."""
_DESCRIPTION_CHARS, _FIELD_CHARS = 240, 60
_MOST_CHARS_PER_TOKEN = 6
"""No usual text has more: what is too long by this measure is too long."""


class Head(Struct, frozen=True):
    """What comes before the conversation in each request."""

    sections: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Sections that are not there, or not whole."""


def fit_sections(sections: Mapping[str, str], window: int) -> Head:
    """The prompt for a window: all of it, or what no agent can do without, and the rest in an eighth of the window."""
    if window >= SMALL_TOKENS:
        return Head(sections)
    left = window * CHARS_PER_TOKEN // 8
    fitted: dict[str, str] = {}
    short: list[str] = []
    for name, text in sections.items():
        if name in _LEFT_OUT:
            short += [name] if name not in ("tools", "rules") else []
            continue
        if name in _CUT and len(text) > left:
            short.append(name)
            text = f"{text[:left]}\n[cut after {left} of {len(text)} characters: the window is small]" if left else ""
        if name in _CUT:
            left = max(0, left - len(text))
        if text:
            fitted[name] = text
    return Head(fitted, tuple(short))


def fit_specs(specs: Sequence[ToolSpec], window: int) -> list[ToolSpec]:
    """The tools that are offered in a window: all, or shortened ones, the essential first."""
    if window >= SMALL_TOKENS:
        return list(specs)
    short = [_shorten(spec) for spec in specs]
    left = window * CHARS_PER_TOKEN // 8
    offered: set[str] = set()
    for spec in sorted(short, key=lambda spec: spec.own_name not in ESSENTIAL):
        left -= _count_chars(spec)
        if spec.own_name not in ESSENTIAL and left < 0:
            break
        offered.add(spec.name)
    return [spec for spec in short if spec.name in offered]


def bound_result(window: int, most: int) -> int:
    """The characters that one tool result may have."""
    return most if window >= BOUND_TOKENS else min(most, window * CHARS_PER_TOKEN // 4)


def read_limit(words: str) -> int | None:
    """The tokens that a server takes, where its refusal says so."""
    found = _TOLD.search(words)
    return None if found is None else int(found[1])


def count_head(prompt: str, specs: Sequence[ToolSpec]) -> int:
    """About how many tokens prompt and tools take."""
    return (len(prompt) + sum(map(_count_chars, specs))) // CHARS_PER_TOKEN


def explain_lack(info: ModelInfo, window: int, head_tokens: int) -> str:
    """Why nothing can be asked of a model with such a window, and what to do; empty when it can."""
    most = window * 3 // 4 if window < SMALL_TOKENS else window
    if window >= LEAST_TOKENS and head_tokens < most:
        return ""
    needed = max(LEAST_TOKENS, head_tokens * 4 // 3)
    return (
        f"{info.ref} has a context window of {window} tokens, and this agent needs at least {needed}: "
        f"its prompt and tools take about {head_tokens}, the conversation and the reply the rest. Choose a model with "
        "a larger window, give it fewer tools (--tools) or shorter instructions; for a server of your own, start it "
        "with a larger context and set contextWindow in models.json"
    )


def explain_length(info: ModelInfo, window: int, head_tokens: int, chars: int) -> str:
    """Why a message of so many characters cannot be given to a model; empty when it may fit."""
    tokens = chars // _MOST_CHARS_PER_TOKEN
    if head_tokens + tokens <= window:
        return ""
    return (
        f"the message has {tokens} tokens or more, and {info.ref} takes {window} with the prompt and the tools, which "
        f"have about {head_tokens}. Shorten it, put it into a file and ask for a part of that, or choose a model with "
        "a larger window"
    )


def _shorten(spec: ToolSpec) -> ToolSpec:
    first = spec.description.partition("\n\n")[0].strip()
    if len(first) > _DESCRIPTION_CHARS:
        cut = first[:_DESCRIPTION_CHARS]
        end = max(cut.rfind(". "), cut.rfind("; "))
        first = cut[: end + 1] if end > 0 else f"{cut}…"
    return structs.replace(spec, description=first, parameters=_shorten_schema(spec.parameters))


def _shorten_schema(schema: Any) -> Any:
    """A schema without its longer descriptions; a field that is called description stays."""
    if isinstance(schema, list):
        return [_shorten_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _shorten_schema(value)
        for name, value in schema.items()
        if not (name == "description" and isinstance(value, str) and len(value) > _FIELD_CHARS)
    }


def _count_chars(spec: ToolSpec) -> int:
    return len(spec.name) + len(spec.description) + len(encode_json(spec.parameters))
