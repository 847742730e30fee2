"""The `compat` section of models.json: which differences of an endpoint there are, and what each may be.

Only names and kinds; what a difference does is the adapters'.
"""

from typing import Any

from retinue.models.fields import Fields

_FLAGS = frozenset(
    (
        "allowEmptySignature",
        "forceAdaptiveThinking",
        "requiresAssistantAfterToolResult",
        "requiresReasoningContentOnAssistantMessages",
        "requiresThinkingAsText",
        "requiresToolResultName",
        "sendImageOptInHeader",
        "sendSessionAffinityHeaders",
        "supportsAdditionalTools",
        "supportsCacheControlOnTools",
        "supportsDeveloperRole",
        "supportsEagerToolInputStreaming",
        "supportsExplicitPromptCacheMode",
        "supportsFinishReason",
        "supportsLongCacheRetention",
        "supportsMaxOutputTokens",
        "supportsMidConvoEffort",
        "supportsMidConvoSystemMessages",
        "supportsMidConvoToolAdditions",
        "supportsMidConvoToolChanges",
        "supportsOpenAIGrammarTools",
        "supportsReasoningEffort",
        "supportsStore",
        "supportsStrictMode",
        "supportsStrictTools",
        "supportsTemperature",
        "supportsThinkingTokenBudget",
        "supportsToolSearch",
        "supportsUsageInStreaming",
        "zaiToolStream",
    )
)
_FORMATS = (
    "openai", "openrouter", "deepseek", "together", "baseten", "zai", "qwen", "chat-template", "qwen-chat-template",
    "string-thinking", "ant-ling",
)  # fmt: skip
_WORDS = {
    "maxTokensField": ("max_completion_tokens", "max_tokens"),
    "thinkingFormat": _FORMATS,
    "thinkingTokenBudgetField": ("thinking_token_budget", "thinking_budget", "thinking_budget_tokens"),
    "cacheControlFormat": ("anthropic",),
    "sessionAffinityFormat": ("openai", "openai-nosession", "openrouter"),
    "imageInput": ("assets", "images", "state-image-urls"),
}
_OBJECTS = ("chatTemplateKwargs", "chatTemplateArgs", "openRouterRouting", "vercelGatewayRouting")
_OTHERS = ("vllmPriority", "allowedFallbackModels")


def take_compat(fields: Fields) -> dict[str, Any]:
    """The differences an entry names; what is not one of them is told and left out."""
    raw = fields.take_object("compat")
    if raw is None:
        return {}
    raw.check_keys((*sorted(_FLAGS), *_WORDS, *_OBJECTS, *_OTHERS))
    return {name: value for name, value in raw.values.items() if _is_right(raw, name, value)}


def _is_right(raw: Fields, name: str, value: Any) -> bool:
    if name in _FLAGS:
        return raw.take_flag(name) is not None
    if name in _WORDS:
        return raw.take_text(name, _WORDS[name].__contains__, "one of " + ", ".join(_WORDS[name])) is not None
    if name in _OBJECTS:
        return raw.take_object(name) is not None
    return name in _OTHERS
