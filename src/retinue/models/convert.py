"""Message conversion shared by all wire formats: JSON bytes, text of special messages, call ids, images.

This file must not know a wire format or settings.
"""

import json
from typing import Any

import orjson
from msgspec import structs

from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ToolResultMessage,
    UserContent,
    UserMessage,
)
from retinue.core.model import Draft, Model, ModelInfo, ModelRequest, Reply
from retinue.core.pattern import late_pattern

NO_RESULT = "No result: the call was interrupted before it finished."
_UNSAFE_ID = late_pattern(r"[^a-zA-Z0-9_-]")


def to_json(value: Any) -> bytes:
    """JSON bytes of wire data; what JSON cannot represent (lone surrogates, huge integers) is replaced."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(clean_all(value), ensure_ascii=False, separators=(",", ":"), default=str).encode()


def clean_text(text: str) -> str:
    """Replace lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def user_content(message: Message) -> str | list[UserContent] | None:
    """The content of a message in the user role; None if it is another kind of message or hidden from the model."""
    if isinstance(message, UserMessage | CustomMessage):
        return message.content
    if isinstance(message, BashExecutionMessage):
        return None if message.exclude_from_context else _bash_text(message)
    if isinstance(message, BranchSummaryMessage):
        return f"Summary of a branch of this conversation that was left:\n\n<summary>\n{message.summary}\n</summary>"
    if isinstance(message, CompactionSummaryMessage):
        return f"The conversation so far was condensed to this summary:\n\n<summary>\n{message.summary}\n</summary>"
    return None


def list_blocks(content: str | list[UserContent], info: ModelInfo) -> list[UserContent]:
    """Content as blocks, without empty texts, and without images if the model accepts text only."""
    if isinstance(content, str):
        return [TextContent(content)] if content else []
    why = "the setting images.blockImages is on" if info.is_image_blocked else "this model gets text only"
    left_out = TextContent(f"(an image was left out: {why})")
    blocks: list[UserContent] = []
    for block in content:
        if isinstance(block, ImageContent):
            if "image" in info.input:
                blocks.append(block)
            elif not blocks or blocks[-1] != left_out:
                blocks.append(left_out)
        elif block.text:
            blocks.append(block)
    return blocks


def drop_images(info: ModelInfo) -> ModelInfo:
    """A copy of the model info without image input, so that its adapter leaves images out."""
    kinds = tuple(kind for kind in info.input if kind != "image")
    return structs.replace(info, input=kinds, is_image_blocked=True)


class TextOnlyModel:
    """Wraps a model and removes images from its requests."""

    def __init__(self, model: Model) -> None:
        self.info = drop_images(model.info)
        self._model = model

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        messages = [self._strip(message) for message in request.messages]
        return await self._model.reply(structs.replace(request, messages=messages), draft)

    def _strip(self, message: Message) -> Message:
        if not isinstance(message, UserMessage | ToolResultMessage | CustomMessage):
            return message
        content = message.content
        if isinstance(content, str) or not any(isinstance(block, ImageContent) for block in content):
            return message
        return structs.replace(message, content=list_blocks(content, self.info))


def is_replayable(message: AssistantMessage) -> bool:
    """Whether a reply can be sent to a model again: a failed, aborted or empty one cannot."""
    return message.stop_reason not in ("error", "aborted", "pending") and bool(message.content)


def is_own(message: AssistantMessage, info: ModelInfo) -> bool:
    """Whether the same model wrote the message over the same API, so that its signatures are valid."""
    return message.model == info.id and message.provider == info.provider and message.api == info.api


def to_call_id(call_id: str, limit: int = 64) -> str:
    """A call id that every API accepts; equal ids stay equal, different ids stay different."""
    plain = _UNSAFE_ID.sub("_", call_id)
    if plain == call_id and 0 < len(plain) <= limit:
        return plain
    import hashlib

    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: limit - 9]}_{digest}"


def _bash_text(message: BashExecutionMessage) -> str:
    text = f"I ran this command: `{message.command}`\n"
    text += f"```\n{message.output}\n```" if message.output else "It printed nothing."
    if message.cancelled:
        text += "\n\nIt was cancelled."
    elif isinstance(message.exit_code, int) and message.exit_code != 0:
        text += f"\n\nIt ended with exit code {message.exit_code}."
    if message.truncated and isinstance(message.full_output_path, str):
        text += f"\n\n(Shortened; the full output is in {message.full_output_path}.)"
    return text


def clean_all(value: Any) -> Any:
    """Replace lone surrogates in all texts of a JSON value."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_all(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean_all(inner) for inner in value]
    return value
