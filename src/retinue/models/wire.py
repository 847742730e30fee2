"""Which adapter speaks which wire format. A new format is one file and one line here."""

from retinue.core.errors import ModelError, quote
from retinue.core.model import Model, ModelInfo
from retinue.models.adapter import Adapter, Key
from retinue.models.anthropic import AnthropicModel
from retinue.models.google import GoogleModel
from retinue.models.governor import Governor
from retinue.models.openai_chat import OpenAIChatModel
from retinue.models.openai_responses import OpenAIResponsesModel
from retinue.models.transport import Timing, Transport

ADAPTERS: dict[str, type[Adapter]] = {
    "anthropic-messages": AnthropicModel,
    "openai-completions": OpenAIChatModel,
    "openai-responses": OpenAIResponsesModel,
    "google-generative-ai": GoogleModel,
}


def build_model(
    info: ModelInfo, *, transport: Transport, key: Key, governor: Governor, timing: Timing | None = None
) -> Model:
    """The model behind the wire format that `info.api` names."""
    adapter = ADAPTERS.get(info.api)
    if adapter is None:
        raise ModelError(f"{info.ref}: unknown api {quote(info.api)}; expected one of {', '.join(ADAPTERS)}")
    return adapter(info, transport, key, governor, timing)
