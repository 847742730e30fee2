"""The environment a command of the model gets: the user's, without the keys of model providers and without prompts."""

import re
from collections.abc import Mapping
from pathlib import Path

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


def build_environment(inherited: Mapping[str, str], session: Mapping[str, str], cwd: str) -> dict[str, str]:
    """What a command sees: inherited variables less secrets, then ours, then the session's."""
    kept = {name: value for name, value in inherited.items() if not is_secret(name) and name not in _FOREIGN}
    return {**kept, **_UNATTENDED, "PWD": cwd, **session}


def add_gate(environment: Mapping[str, str]) -> dict[str, str]:
    """The same, and bash makes sure that retinue lives before it begins."""
    own = environment.get("BASH_ENV")
    return {**environment, "BASH_ENV": GATE, **({} if own is None else {"RETINUE_BASH_ENV": own})}


def is_secret(name: str) -> bool:
    """Whether a variable holds the key of a model provider."""
    return _SECRET.fullmatch(name) is not None
