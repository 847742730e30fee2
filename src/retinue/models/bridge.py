"""Adapter for providers of pydantic-ai that we have no adapter for: the optional extra `retinue[bridge]`.

The library is imported when a model is built. Slower than our adapters, same interface. This file must not know wire
formats.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from retinue.core.errors import ModelError
from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
    UserContent,
    join_text,
)
from retinue.core.model import Draft, Failure, FailureKind, ModelInfo, ModelRequest, Reply
from retinue.models.convert import is_own, is_replayable, list_blocks, user_content
from retinue.models.cost import count_tokens
from retinue.models.failures import classify_response, fail, redact_failure
from retinue.models.governor import Governor
from retinue.models.reply_reader import ReplyReader
from retinue.models.thinking_levels import clamp_level
from retinue.models.transport import Timing

_DAY_S = 86_400
_ERRORS = (OSError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError)
_LATE = "it is silent, or takes longer than the settings httpIdleTimeoutMs and retry.provider.timeoutMs allow"
_MISSING = "needs the extra 'bridge' (pip install 'retinue[bridge]')"


def build_bridge(
    info: ModelInfo,
    *,
    governor: Governor,
    secrets: tuple[str, ...] = (),
    timing: Timing | None = None,
    model: Any = None,
) -> "BridgedModel":
    """Wrap pydantic-ai's model `provider:id`, or a given model object. Raises ModelError.

    pydantic-ai finds the key itself; `secrets` are not shown in messages about failures.
    """
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise ModelError(f"{info.ref}: this provider {_MISSING}") from error

    if model is None:
        try:
            model = infer_model(f"{info.provider}:{info.id}")
        except (UserError, ImportError, ValueError, TypeError) as error:
            raise ModelError(f"{info.ref}: {error}") from error
    return BridgedModel(info, model, governor, timing or Timing(), secrets)


class BridgedModel:
    """A model of pydantic-ai behind our Model interface; call `close` when it is no longer needed."""

    def __init__(
        self, info: ModelInfo, model: Any, governor: Governor, timing: Timing, secrets: tuple[str, ...] = ()
    ) -> None:
        self.info = info
        self._model = model
        self._governor = governor
        self._timing = timing
        self._secrets = secrets
        self._is_entered = False

    async def close(self) -> None:
        if self._is_entered:
            self._is_entered = False
            await self._model.__aexit__(None, None, None)

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Answer the request. MUST NOT raise."""
        from pydantic_ai.exceptions import AgentRunError, UserError

        reading = _BridgeReading(self.info, draft)
        if self._governor.is_holding(self.info.provider):
            await self._governor.admit(self.info.provider, draft.say)
        try:
            if not self._is_entered:
                await self._model.__aenter__()
                self._is_entered = True
            await self._ask(request, reading)
            reply = reading.finish()
        except (AgentRunError, UserError, *_ERRORS) as error:
            reply = reading.fail(self._explain(error))
        self._governor.record(self.info.provider, reply.failure)
        return reply

    async def _ask(self, request: ModelRequest, reading: "_BridgeReading") -> None:
        from pydantic_ai.direct import model_request_stream

        messages, parameters = to_their_messages(request, self.info, self._model.system), _parameters(request)
        idle_s, now = self._timing.idle_s, asyncio.get_running_loop().time
        async with (
            asyncio.timeout(self._timing.total_s or None),
            asyncio.timeout(idle_s or None) as silence,
            model_request_stream(
                self._model, messages, model_settings=self._settings(request), model_request_parameters=parameters
            ) as events,
        ):
            async for event in events:
                if idle_s:
                    silence.reschedule(now() + idle_s)
                reading.read(event)
                if reading.is_done:
                    break
            reading.read_response(events.get())

    def _settings(self, request: ModelRequest) -> Any:
        # We enforce our own limits; the library's timeout must not come first.
        settings: dict[str, Any] = {"max_tokens": request.max_tokens or self.info.max_tokens, "timeout": _DAY_S}
        if self.info.reasoning:
            level = clamp_level(self.info, request.thinking)
            settings["thinking"] = False if level == "off" else "high" if level in ("xhigh", "max") else level
        return settings

    def _explain(self, error: Exception) -> Failure:
        from pydantic_ai import exceptions

        if isinstance(error, exceptions.ModelHTTPError):
            body = error.body if isinstance(error.body, bytes) else str(error.body or error).encode()
            failure = classify_response(self.info, error.status_code, error.headers or {}, body)
        else:
            kinds: list[tuple[type[Exception], FailureKind]] = [
                (exceptions.ModelTimeoutError, "timeout"),
                (TimeoutError, "timeout"),
                (exceptions.ModelContextWindowExceededError, "overflow"),
                (exceptions.ModelAuthenticationError, "auth"),
                (exceptions.ModelAPIError, "network"),
                (exceptions.ContentFilterError, "refused"),
                (exceptions.UserError, "request"),
                (NotImplementedError, "request"),
                (OSError, "network"),
                (Exception, "protocol"),
            ]
            kind = next(kind for cause, kind in kinds if isinstance(error, cause))
            text = " ".join(str(error).split())[:400] or (_LATE if kind == "timeout" else type(error).__name__)
            failure = fail(self.info, kind, text, retryable=True if kind == "protocol" else None)
        return redact_failure(failure, self._secrets)


def to_their_messages(request: ModelRequest, info: ModelInfo, system: str) -> list[Any]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, ToolReturnPart, UserPromptPart

    theirs: list[Any] = []

    def add(part: Any) -> None:
        if not theirs or not isinstance(theirs[-1], ModelRequest):
            theirs.append(ModelRequest(parts=[]))
        theirs[-1].parts.append(part)

    if request.system:
        add(SystemPromptPart(request.system))
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            if is_replayable(message):
                parts = _response_parts(message, info, system)
                theirs.append(ModelResponse(parts=parts, model_name=message.model, provider_name=system))
        elif isinstance(message, ToolResultMessage):
            blocks = list_blocks(message.content, info)
            add(ToolReturnPart(message.tool_name, join_text(blocks), tool_call_id=message.tool_call_id))
            if images := [block for block in blocks if isinstance(block, ImageContent)]:
                add(UserPromptPart(_user_parts(images)))
        elif blocks := _user_blocks(message, info):
            add(UserPromptPart(_user_parts(blocks)))
    return theirs


def _user_blocks(message: Message, info: ModelInfo) -> list[UserContent]:
    content = user_content(message)
    return [] if content is None else list_blocks(content, info)


def _user_parts(blocks: Sequence[UserContent]) -> list[Any]:
    from pydantic_ai.messages import BinaryContent

    parts: list[Any] = []
    for block in blocks:
        if isinstance(block, TextContent):
            parts.append(block.text)
            continue
        try:
            parts.append(BinaryContent(base64.b64decode(block.data), media_type=block.mime_type))
        except binascii.Error:
            parts.append("(an image that cannot be read)")
    return parts


def _response_parts(message: AssistantMessage, info: ModelInfo, system: str) -> list[Any]:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    own = is_own(message, info)
    parts: list[Any] = []
    for block in message.content:
        if isinstance(block, TextContent):
            parts.append(TextPart(block.text))
        elif not isinstance(block, ThinkingContent):
            parts.append(ToolCallPart(block.name, block.arguments, tool_call_id=block.id))
        elif own:
            signature = block.thinking_signature or None
            parts.append(ThinkingPart(block.thinking, signature=signature, provider_name=system))
        elif block.thinking.strip():
            parts.append(TextPart(block.thinking))
    return parts


def _parameters(request: ModelRequest) -> Any:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


class _BridgeReading(ReplyReader):
    """Reads pydantic-ai's parts and part events, distinguished by their kind fields."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: dict[int, tuple[int, str]] = {}

    def read(self, event: Any) -> None:
        match event.event_kind:
            case "part_start":
                self._begin(event.index, event.part)
            case "part_delta":
                if event.index in self._open:
                    delta = event.delta
                    piece = delta.args_delta if delta.part_delta_kind == "tool_call" else delta.content_delta
                    if isinstance(piece, str):
                        self.write(self._open[event.index][0], piece)
            case "part_end":
                self.end(event.index, event.part)

    def end(self, number: int, part: Any) -> None:
        """Process a finished part, whether it was started before or not."""
        if number not in self._open:
            self._begin(number, part)
        index, call_id = self._open.pop(number, (-1, ""))
        if index < 0:
            return
        if part.part_kind == "text":
            self.draft.close_text(index)
        elif part.part_kind == "thinking":
            self.draft.close_thinking(index, signature=part.signature or UNSET)
        else:
            self.close_call(index, call_id, part.tool_name, {} if part.args is None else part.args)

    def read_response(self, response: Any) -> None:
        self.set_response(response.provider_response_id, response.model_name)
        self.raw_stop = response.finish_reason or ""
        usage = response.usage
        read, written = count_tokens(usage.cache_read_tokens), count_tokens(usage.cache_write_tokens)
        self.set_usage(
            fresh=max(0, count_tokens(usage.input_tokens) - read - written),
            output=count_tokens(usage.output_tokens),
            cache_read=read,
            cache_write=written,
        )
        self.is_complete = self.is_done = True

    def judge(self) -> tuple[StopReason, Failure | None]:
        if self.raw_stop == "length":
            return "length", None
        if self.raw_stop == "content_filter":
            return self.refuse("the provider's content filter stopped the reply")
        if self.raw_stop == "error":
            return "error", fail(self.info, "overloaded", "the provider ended the reply with an error")
        return "stop", None

    def _begin(self, number: int, part: Any) -> None:
        if part.part_kind == "text":
            index, call_id, piece = self.open_text(), "", part.content
        elif part.part_kind == "thinking":
            index, call_id, piece = self.open_thinking(), "", part.content
        elif part.part_kind == "tool-call":
            index, call_id = self.open_call(part.tool_call_id, part.tool_name)
            piece = part.args if isinstance(part.args, str) else ""
        else:
            return
        self._open[number] = (index, call_id)
        self.write(index, piece)
