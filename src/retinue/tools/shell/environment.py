"""The environment a shell command gets: nothing that asks a person, and of the user's what a list names.

The user's own commands have the user's own, less the keys of model providers.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.core.environment import select

_PROVIDERS = (
    *("AI_GATEWAY", "ANTHROPIC", "AZURE_OPENAI", "CEREBRAS", "CLAUDE_CODE", "COHERE", "DEEPSEEK", "FIREWORKS"),
    *("GEMINI", "GOOGLE", "GOOGLE_CLOUD", "GROQ", "HF", "HUGGINGFACE", "KIMI", "MINIMAX", "MISTRAL", "MOONSHOT"),
    *("NVIDIA", "OPENAI", "OPENCODE", "OPENROUTER", "PERPLEXITY", "TOGETHER", "XAI", "ZAI", "ZHIPU"),
)
_SECRET = re.compile(
    rf"(?:{'|'.join(_PROVIDERS)})(?:_[A-Z0-9]+)*_(?:API_KEY|KEY|TOKEN)|COPILOT_GITHUB_TOKEN|AWS_BEARER_TOKEN_BEDROCK"
)
GATE = str(Path(__file__).with_name("gate.sh"))
# Of the session that started us, if one did: they would name the wrong one.
_FOREIGN = frozenset({"PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL"})
# Nobody is there to answer: pagers, editors and password prompts end at once instead of waiting.
_UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
}


def build_environment(
    inherited: Mapping[str, str], session: Mapping[str, str], cwd: str, names: Iterable[str] | None = None
) -> dict[str, str]:
    """What a command sees: inherited variables, then ours, then the session's.

    `names` are all that it may inherit; without them it inherits everything but keys, and others choose from that.
    """
    known = inherited if names is None else select(inherited, names)
    kept = {name: value for name, value in known.items() if not is_secret(name) and name not in _FOREIGN}
    return {**kept, **_UNATTENDED, "PWD": cwd, **session}


def add_gate(environment: Mapping[str, str]) -> dict[str, str]:
    """The same, and bash makes sure that retinue lives before it begins."""
    own = environment.get("BASH_ENV")
    return {**environment, "BASH_ENV": GATE, **({} if own is None else {"RETINUE_BASH_ENV": own})}


def is_secret(name: str) -> bool:
    """Whether a variable holds the key of a model provider."""
    return _SECRET.fullmatch(name) is not None
