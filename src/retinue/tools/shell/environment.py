"""The environment of a shell command: no variable that makes a program ask a person, and no key of a model provider.

The user's own commands get the user's whole environment without those keys.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.core.environment import select
from retinue.core.pattern import late_pattern

_PROVIDERS = (
    *("AI_GATEWAY", "ANTHROPIC", "AZURE_OPENAI", "CEREBRAS", "CLAUDE_CODE", "COHERE", "DEEPSEEK", "FIREWORKS"),
    *("GEMINI", "GOOGLE", "GOOGLE_CLOUD", "GROQ", "HF", "HUGGINGFACE", "KIMI", "MINIMAX", "MISTRAL", "MOONSHOT"),
    *("NVIDIA", "OPENAI", "OPENCODE", "OPENROUTER", "PERPLEXITY", "TOGETHER", "XAI", "ZAI", "ZHIPU"),
)
_SECRET = late_pattern(
    rf"(?:{'|'.join(_PROVIDERS)})(?:_[A-Z0-9]+)*_(?:API_KEY|KEY|TOKEN)|COPILOT_GITHUB_TOKEN|AWS_BEARER_TOKEN_BEDROCK"
)
GATE = str(Path(__file__).with_name("gate.sh"))
# Variables of the session that started us, if any; they would name the wrong session.
_FOREIGN = frozenset({"PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL"})
# No user is present, so pagers, editors and password prompts must end at once instead of waiting.
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
    """Build a command's environment: inherited variables, then ours, then the session's.

    `names` are the variables that may be inherited; None means all except keys, and the sandbox then selects from them.
    """
    known = inherited if names is None else select(inherited, names)
    kept = {name: value for name, value in known.items() if not is_secret(name) and name not in _FOREIGN}
    return {**kept, **_UNATTENDED, "PWD": cwd, **session}


def add_gate(environment: Mapping[str, str]) -> dict[str, str]:
    """Make bash check, before the command starts, that retinue is still alive."""
    own = environment.get("BASH_ENV")
    return {**environment, "BASH_ENV": GATE, **({} if own is None else {"RETINUE_BASH_ENV": own})}


def is_secret(name: str) -> bool:
    """Whether a variable holds the key of a model provider."""
    return _SECRET.fullmatch(name) is not None
