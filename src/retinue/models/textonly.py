"""A model that is sent no images, whoever has made it. Must not know settings."""

from msgspec import structs

from retinue.core.messages import ImageContent, Message
from retinue.core.model import Draft, Model, ModelInfo, Reply, Request
from retinue.models.convert import list_blocks


def drop_images(info: ModelInfo) -> ModelInfo:
    """What is known about a model, as if it took no images: its adapter then leaves them out."""
    return structs.replace(info, input=tuple(kind for kind in info.input if kind != "image"))


class TextOnlyModel:
    """Leaves images out of what another model is asked."""

    def __init__(self, model: Model) -> None:
        self.info = drop_images(model.info)
        self._model = model

    async def reply(self, request: Request, draft: Draft) -> Reply:
        """Answer the request. MUST NOT raise."""
        messages = [self._strip(message) for message in request.messages]
        return await self._model.reply(structs.replace(request, messages=messages), draft)

    def _strip(self, message: Message) -> Message:
        content = getattr(message, "content", None)
        if not isinstance(content, list) or not any(isinstance(block, ImageContent) for block in content):
            return message
        return structs.replace(message, content=list_blocks(content, self.info))
