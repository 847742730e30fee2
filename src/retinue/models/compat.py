"""Differences between endpoints: the `compat` section of models.json, and defaults derived from a server's address."""

from typing import Any
from urllib.parse import urlsplit

from retinue.core.messages import ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.models.fields import ConfigObject
from retinue.models.thinking_levels import budget_tokens, can_disable

_FLAGS = (
    "allowEmptySignature", "forceAdaptiveThinking", "requiresAssistantAfterToolResult",
    "requiresReasoningContentOnAssistantMessages", "requiresThinkingAsText", "requiresToolResultName",
    "sendImageOptInHeader", "sendSessionAffinityHeaders", "supportsAdditionalTools", "supportsCacheControlOnTools",
    "supportsDeveloperRole", "supportsEagerToolInputStreaming", "supportsExplicitPromptCacheMode",
    "supportsFinishReason", "supportsLongCacheRetention", "supportsMaxOutputTokens", "supportsMidConvoEffort",
    "supportsMidConvoSystemMessages", "supportsMidConvoToolAdditions", "supportsMidConvoToolChanges",
    "supportsOpenAIGrammarTools", "supportsReasoningEffort", "supportsStore", "supportsStrictMode",
    "supportsStrictTools", "supportsTemperature", "supportsThinkingTokenBudget", "supportsToolSearch",
    "supportsUsageInStreaming", "zaiToolStream",
)  # fmt: skip
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


def take_compat(fields: ConfigObject) -> dict[str, Any]:
    """The valid compat fields of an entry; invalid ones are reported and left out."""
    raw = fields.take_object("compat")
    if raw is None:
        return {}
    raw.check_keys((*_FLAGS, *_WORDS, *_OBJECTS, *_OTHERS))
    return {name: value for name, value in raw.values.items() if _is_right(raw, name, value)}


def _is_right(raw: ConfigObject, name: str, value: Any) -> bool:
    if name in _FLAGS:
        return raw.take_flag(name) is not None
    if name in _WORDS:
        return raw.take_text(name, _WORDS[name].__contains__, "one of " + ", ".join(_WORDS[name])) is not None
    if name in _OBJECTS:
        return raw.take_object(name) is not None
    return name in _OTHERS


_HOSTS = {
    "zai": ("api.z.ai", "open.bigmodel.cn"),
    "together": ("api.together.ai", "api.together.xyz"),
    "moonshotai": ("api.moonshot.",),
    "openrouter": ("openrouter.ai",),
    "cloudflare": ("api.cloudflare.com", "gateway.ai.cloudflare.com"),
    "nvidia": ("integrate.api.nvidia.com",),
    "ant-ling": ("api.ant-ling.com",),
    "cerebras": ("cerebras.ai",),
    "deepseek": ("deepseek.com",),
    "xai": ("api.x.ai",),
    "chutes": ("chutes.ai",),
    "opencode": ("opencode.ai",),
}
_MAX_TOKENS = {"chutes", "deepseek", "moonshotai", "cloudflare", "together", "nvidia", "ant-ling", "zai"}
_NO_EFFORT = {"xai", "zai", "moonshotai", "together", "cloudflare", "nvidia", "ant-ling"}
_FORMATS_OF_HOSTS = {"zai": "zai", "together": "together", "ant-ling": "ant-ling", "openrouter": "openrouter"}
_BUDGET_FIELDS = _WORDS["thinkingTokenBudgetField"]


def detect_compat(info: ModelInfo, base_url: str) -> dict[str, Any]:
    """All compat fields of a model: defaults for its address, overridden by the model's own."""
    host = _detect_host(info, base_url)
    is_openai = "api.openai.com" in base_url or "openai.azure.com" in base_url
    of_known = host == "openrouter" and info.id.startswith(("anthropic/", "openai/"))
    detected: dict[str, Any] = {
        "supportsStore": is_openai,
        "supportsDeveloperRole": of_known or is_openai,
        "supportsReasoningEffort": host not in _NO_EFFORT,
        "supportsUsageInStreaming": True,
        "supportsFinishReason": True,
        "maxTokensField": "max_tokens" if host in _MAX_TOKENS or _is_local(base_url) else "max_completion_tokens",
        "requiresReasoningContentOnAssistantMessages": host == "deepseek",
        "thinkingFormat": "deepseek" if host == "deepseek" else _FORMATS_OF_HOSTS.get(host, "openai"),
        "cacheControlFormat": "anthropic" if host == "openrouter" and info.id.startswith("anthropic/") else None,
        "sendSessionAffinityHeaders": host == "openrouter",
        "sessionAffinityFormat": "openrouter" if host == "openrouter" else "openai",
    }
    return detected | {name: value for name, value in info.compat.items() if value is not None}


def thinking_fields(info: ModelInfo, compat: dict[str, Any], level: ThinkingLevel, ceiling: int) -> dict[str, Any]:
    """The request fields for the thinking level; `level` must be one that the model supports."""
    if not info.reasoning:
        return {}
    on = level != "off"
    effort = info.thinking_level_map.get(level, level if on else None)
    efforts = {"reasoning_effort": effort} if on and effort and compat["supportsReasoningEffort"] else {}
    match compat["thinkingFormat"]:
        case "zai":
            state = {"type": "enabled", "clear_thinking": False} if on else {"type": "disabled"}
            fields: dict[str, Any] = {"thinking": state, **efforts}
        case "qwen":
            fields = {"enable_thinking": on, **efforts}
        case "qwen-chat-template":
            fields = {"chat_template_kwargs": {"enable_thinking": on, "preserve_thinking": True}}
        case "chat-template":
            values = _fill_template(compat.get("chatTemplateKwargs") or {}, info, level, ceiling)
            fields = {"chat_template_kwargs": values} if values else {}
        case "baseten":
            values = _fill_template(compat.get("chatTemplateArgs") or {}, info, level, ceiling)
            fields = ({"chat_template_args": values} if values else {}) | efforts
        case "deepseek":
            fields = {"thinking": {"type": "enabled"}} if on else {}
            if not on and can_disable(info):
                fields = {"thinking": {"type": "disabled"}}
            fields |= efforts
        case "openrouter":
            off = {"reasoning": {"effort": effort or "none"}} if can_disable(info) else {}
            fields = {"reasoning": {"effort": effort}} if on else off
        case "ant-ling":
            mapped = info.thinking_level_map.get(level) if on else None
            fields = {"reasoning": {"effort": mapped}} if mapped else {}
        case "together":
            fields = {"reasoning": {"enabled": on}, **efforts}
        case "string-thinking":
            fields = {"thinking": effort or "none"} if on or can_disable(info) else {}
        case _:
            # Plain OpenAI: "off" is sent only if the model's own word for it is known.
            fields = efforts if on else ({"reasoning_effort": effort} if effort else {})
            if not compat["supportsReasoningEffort"]:
                fields = {}
    return fields | (_budget_field(compat, info, level, ceiling) if on else {})


def _detect_host(info: ModelInfo, base_url: str) -> str:
    for host, marks in _HOSTS.items():
        if info.provider == host or any(mark in base_url for mark in marks):
            return host
    return ""


def _is_local(base_url: str) -> bool:
    # Ollama, LM Studio and llama.cpp all accept the older name of the field.
    host = urlsplit(base_url).hostname or ""
    return host == "localhost" or host.startswith(("127.", "192.168.", "10.")) or host == "::1"


def _budget_field(compat: dict[str, Any], info: ModelInfo, level: ThinkingLevel, ceiling: int) -> dict[str, Any]:
    field = compat.get("thinkingTokenBudgetField")
    if field is None and compat.get("supportsThinkingTokenBudget"):
        field = _BUDGET_FIELDS[0]
    budget = budget_tokens(info, level, ceiling)
    return {field: budget} if field in _BUDGET_FIELDS and budget else {}


def _fill_template(values: dict[str, Any], info: ModelInfo, level: ThinkingLevel, ceiling: int) -> dict[str, Any]:
    on = level != "off"
    filled = {}
    for name, value in values.items():
        if not isinstance(value, dict):
            filled[name] = value
            continue
        if not on and value.get("omitWhenOff"):
            continue
        known = {
            "thinking.enabled": on,
            "thinking.effort": info.thinking_level_map.get(level, level if on else None),
            "thinking.budget": budget_tokens(info, level, ceiling) if on else None,
        }
        if (resolved := known.get(value.get("$var", ""))) is not None:
            filled[name] = resolved
    return filled
