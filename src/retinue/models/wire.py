"""Which adapter speaks which wire format. A new format is one file and one line here."""

from importlib import import_module

from retinue.core.errors import ModelError, quote
from retinue.core.model import Model, ModelInfo
from retinue.models.adapter import Adapter, Key
from retinue.models.governor import Governor
from retinue.models.transport import Timing, Transport

# Module and class: a process mostly speaks one of them, and only that one is loaded.
ADAPTERS = {
    "anthropic-messages": ("anthropic", "AnthropicModel"),
    "openai-completions": ("openai_chat", "OpenAIChatModel"),
    "openai-responses": ("openai_responses", "OpenAIResponsesModel"),
    "google-generative-ai": ("google", "GoogleModel"),
}


def build_model(
    info: ModelInfo, *, transport: Transport, key: Key, governor: Governor, timing: Timing | None = None
) -> Model:
    """The model behind the wire format that `info.api` names."""
    if info.api not in ADAPTERS:
        raise ModelError(f"{info.ref}: unknown api {quote(info.api)}; expected one of {', '.join(ADAPTERS)}")
    module, name = ADAPTERS[info.api]
    adapter: type[Adapter] = getattr(import_module(f"retinue.models.{module}"), name)
    return adapter(info, transport, key, governor, timing)
