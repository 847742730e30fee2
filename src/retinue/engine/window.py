"""Fits prompt, tools and results into a small context window.

For larger windows nothing changes. MUST NOT know where the parts come from.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.pattern import late_pattern
from retinue.core.tool import Tool
from retinue.sessions.compaction import CHARS_PER_TOKEN, CompactionConfig

LEAST_TOKENS = 4_096
"""The smallest context window that an agent can work with."""
SMALL_TOKENS = 16_384
"""Below this, prompt and tool list are shortened."""
BOUND_TOKENS = 65_536
"""Below this, one tool result may take at most a quarter of the window."""
ESSENTIAL = ("read", "bash", "edit", "write", "Agent")
"""Tools that are always offered; the others only while there is room."""
_LEFT_OUT = ("tools", "rules", "skills", "subagents", "delegation")
"""Prompt sections that only give advice; left out in a small window."""
_CUT = ("project_context", "parent", "addendum")
"""Prompt sections that are truncated in a small window."""
_TOLD = late_pattern(
    r"(?i)(?:context (?:length|size|window)|prompt length|maximum number of tokens allowed|tokens >)(?: is| of)?"
    r"\D{0,12}(\d{3,8})"
)
"""How servers state their limit when they refuse a request that is too long."""
_DESCRIPTION_CHARS, _FIELD_CHARS = 240, 60
_MOST_CHARS_PER_TOKEN = 6
"""No ordinary text has more characters per token: a text that is too long by this ratio certainly is."""


class FittedPrompt(Struct, frozen=True):
    """The prompt sections that fit into a window."""

    sections: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Sections that are missing or truncated."""


class RunWindow:
    """The context window of a run's current model; warns once about each thing that does not fit."""

    def __init__(self, read_info: Callable[[], ModelInfo], warn: Callable[[str], None]) -> None:
        self._read_info = read_info
        self._warn = warn
        self._learnt: dict[str, int] = {}
        """The limits that servers reported, by model."""
        self._told: set[str] = set()

    @property
    def tokens(self) -> int:
        info = self._read_info()
        most = info.context_window
        return min(most, self._learnt.get(info.ref, most)) if self._learnt else most

    @property
    def output_tokens(self) -> int | None:
        """The maximum length of a reply if the window is smaller than configured; None for the model's maximum."""
        learnt = self._learnt.get(self._read_info().ref)
        return None if learnt is None else learnt // 4

    def learn(self, words: str) -> bool:
        """Use the limit that a server's error message states; False if it states none or it is not smaller."""
        info, told = self._read_info(), read_limit(words)
        if told is None or told >= self.tokens:
            return False
        text = f"{info.ref} accepts {told} tokens, not {info.context_window}; continuing with that limit"
        self._warn(f"{text} (set contextWindow in models.json)")
        self._learnt[info.ref] = told
        return True

    def explain(self, head_tokens: int, chars: int) -> str:
        info, window = self._read_info(), self.tokens
        return explain_lack(info, window, head_tokens) or explain_length(info, window, head_tokens, chars)

    def tell_short(self, sections: Sequence[str], tools: Sequence[str]) -> None:
        missing = [f"the prompt's {name}" for name in sections] + ([f"the tools {', '.join(tools)}"] if tools else [])
        if missing:
            ref, lack = self._read_info().ref, " and ".join(missing)
            self._warn_once(f"{ref} has a context window of {self.tokens} tokens, with no room for {lack}")

    def tell_scaled(self, wished: CompactionConfig, head_tokens: int) -> None:
        """Warn about compaction settings of the user that do not fit into the window."""
        info, used, usual = self._read_info(), wished.fit(self.tokens, head_tokens), CompactionConfig()
        for name, wish, number, default in (
            ("reserveTokens", wished.reserve_tokens, used.reserve_tokens, usual.reserve_tokens),
            ("keepRecentTokens", wished.keep_recent_tokens, used.keep_recent_tokens, usual.keep_recent_tokens),
        ):
            if wish not in (default, number):
                text = f"compaction.{name}: {wish} does not fit into the context window of {info.ref}"
                self._warn_once(f"{text} ({info.context_window} tokens); using {number}")

    def _warn_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)


class FittedSpecs:
    """Tool specs that fit into a window; the same list object until tools are added, as adapters cache by identity."""

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
            # Descriptions contain text from agent files and servers, which may hold secrets.
            self._specs = [_redact_spec(spec, self._redact) for spec in specs]
        return self._specs


def fit_sections(sections: Mapping[str, str], window: int) -> FittedPrompt:
    """Return the prompt for a window: all of it, or the necessary sections and the rest in an eighth of the window."""
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
            note = f"[truncated after {left} of {len(text)} characters: the context window is small]"
            text = f"{text[:left]}\n{note}" if left else ""
        if name in _CUT:
            left = max(0, left - len(text))
        if text:
            fitted[name] = text
    return FittedPrompt(fitted, tuple(short))


def fit_specs(specs: Sequence[ToolSpec], window: int) -> list[ToolSpec]:
    """Return the tools to offer in a window: all of them, or shortened ones with the essential tools first."""
    if window >= SMALL_TOKENS:
        return list(specs)
    short = [_shorten(spec) for spec in specs]
    left = window * CHARS_PER_TOKEN // 8
    offered: set[str] = set()
    for spec in sorted(short, key=lambda spec: spec.own_name not in ESSENTIAL):
        left -= spec.size
        if spec.own_name not in ESSENTIAL and left < 0:
            break
        offered.add(spec.name)
    return [spec for spec in short if spec.name in offered]


def bound_result(window: int, most: int) -> int:
    return most if window >= BOUND_TOKENS else min(most, window * CHARS_PER_TOKEN // 4)


def read_limit(words: str) -> int | None:
    """Return the token limit that a server's error message states, or None."""
    found = _TOLD.search(words)
    return None if found is None else int(found[1])


def count_head(prompt: str, specs: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of system prompt and tools."""
    return (len(prompt) + sum(spec.size for spec in specs)) // CHARS_PER_TOKEN


def explain_lack(info: ModelInfo, window: int, head_tokens: int) -> str:
    """Return why the window is too small for this prompt and what to do; empty if it is not."""
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
    """Return why a message of this many characters is too long; empty if it may fit."""
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
    """Return a schema without long descriptions; a property named `description` stays."""
    if isinstance(schema, list):
        return [_shorten_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _shorten_schema(value)
        for name, value in schema.items()
        if not (name == "description" and isinstance(value, str) and len(value) > _FIELD_CHARS)
    }


def _redact_spec(spec: ToolSpec, redact: Callable[[Any], Any]) -> ToolSpec:
    text = redact(spec.description)
    # The same object if it holds no secret: runs that have it in common compare and measure it quickly.
    return spec if text is spec.description else structs.replace(spec, description=text)
