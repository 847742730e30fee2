"""What a run with a small window is given: a short prompt, short descriptions, fewer tools, shorter results.

Above the limits everything stays as it is. Must not know where the parts come from.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from retinue.core.jsonline import encode_json
from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.tool import Tool
from retinue.sessions.compaction import CHARS_PER_TOKEN, CompactionConfig

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


class FittedPrompt(Struct, frozen=True):
    """What comes before the conversation in each request."""

    sections: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Sections that are not there, or not whole."""


class RunWindow:
    """The window of the model that one run asks, as far as it is known. Says once what does not fit."""

    def __init__(self, read_info: Callable[[], ModelInfo], warn: Callable[[str], None]) -> None:
        self._read_info = read_info
        self._warn = warn
        self._learnt: dict[str, int] = {}
        """As servers told it, by model."""
        self._told: set[str] = set()

    @property
    def tokens(self) -> int:
        """The tokens that the model takes."""
        info = self._read_info()
        return min(info.context_window, self._learnt.get(info.ref, info.context_window))

    @property
    def output_tokens(self) -> int | None:
        """How long a reply may be where the window is smaller than configured; None for as long as the model can."""
        learnt = self._learnt.get(self._read_info().ref)
        return None if learnt is None else learnt // 4

    def learn(self, words: str) -> bool:
        """Take a server at its word that takes less than is configured; False when it says nothing new."""
        info, told = self._read_info(), read_limit(words)
        if told is None or told >= self.tokens:
            return False
        text = f"{info.ref} takes {told} tokens, not {info.context_window}: going on with a window of that size"
        self._warn(f"{text} (set contextWindow in models.json)")
        self._learnt[info.ref] = told
        return True

    def explain(self, head_tokens: int, chars: int) -> str:
        """Why a message of so many characters cannot be worked on; empty when it can."""
        info, window = self._read_info(), self.tokens
        return explain_lack(info, window, head_tokens) or explain_length(info, window, head_tokens, chars)

    def tell_short(self, sections: Sequence[str], tools: Sequence[str]) -> None:
        """Say what there is no room for."""
        missing = [f"the prompt's {name}" for name in sections] + ([f"the tools {', '.join(tools)}"] if tools else [])
        if missing:
            ref, lack = self._read_info().ref, " and ".join(missing)
            self._warn_once(f"{ref} has a window of {self.tokens} tokens: there is no room for {lack}")

    def tell_scaled(self, wished: CompactionConfig, head_tokens: int) -> None:
        """Say that a number of the user's is not used, since it leaves no room."""
        info, used, usual = self._read_info(), wished.fit(self.tokens, head_tokens), CompactionConfig()
        for name, wish, number, default in (
            ("reserveTokens", wished.reserve_tokens, used.reserve_tokens, usual.reserve_tokens),
            ("keepRecentTokens", wished.keep_recent_tokens, used.keep_recent_tokens, usual.keep_recent_tokens),
        ):
            if wish not in (default, number):
                text = f"compaction.{name}: {wish} does not fit into the window of {info.ref}"
                self._warn_once(f"{text} ({info.context_window} tokens); {number} is used")

    def _warn_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)


class FittedSpecs:
    """The specs of tools to which more may be added; the same list as long as none is, since adapters know it by it."""

    def __init__(self, tools: Mapping[str, Tool], redact: Callable[[Any], Any], window: int) -> None:
        self._tools = tools
        self._redact = redact
        self._window = window
        self._count = 0
        self._specs: list[ToolSpec] = []

    def __call__(self) -> list[ToolSpec]:
        if self._count != len(self._tools):
            self._count = len(self._tools)
            specs = fit_specs([tool.spec for tool in self._tools.values()], self._window)
            # What agents' files and servers say about themselves is in there.
            self._specs = [structs.replace(spec, description=self._redact(spec.description)) for spec in specs]
        return self._specs


def fit_sections(sections: Mapping[str, str], window: int) -> FittedPrompt:
    """The prompt for a window: all of it, or what no agent can do without, and the rest in an eighth of the window."""
    if window >= SMALL_TOKENS:
        return FittedPrompt(sections)
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
    return FittedPrompt(fitted, tuple(short))


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
