"""Read one reply: fill the Draft, enforce limits, parse tool call arguments, and build the Reply.

A subclass for each wire format interprets the payloads. This file must not know HTTP.
"""

import json
from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import UNSET, UnsetType

from retinue.core.messages import StopReason, ToolCall
from retinue.core.model import Draft, Failure, ModelInfo, Reply
from retinue.models.cost import count_tokens, to_usage
from retinue.models.failures import ProviderError, classify_event, fail

_DEPTH_CHECK_CHARS = 500
"""Shorter arguments cannot exceed the nesting limit of the serialisers."""


def parse_arguments(raw: str | bytes) -> tuple[dict[str, Any], str]:
    """The arguments and an empty string, or the usable part and an error for the model."""
    if not raw or raw.isspace():
        return {}, ""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return {}, _explain(error, raw)
    if value is None:
        return {}, ""
    if type(value) is not dict:
        return {}, f"The arguments must be a JSON object, not {_name_type(value)}; the tool was not run."
    if len(raw) > _DEPTH_CHECK_CHARS and (fault := check_arguments(value)):
        return {}, fault
    # Every member has a colon: if there are no more colons than keys, no key is repeated.
    colons = raw.count(":") if isinstance(raw, str) else raw.count(b":")
    if colons > len(value) and (twice := _find_duplicate(raw)):
        return value, f"The arguments have the key {twice!r} twice; the tool was not run. Send each key once."
    return value, ""


def check_arguments(value: Any, *, strict: bool = False) -> str:
    """The error in arguments that came already parsed; empty if they can be used and sent again."""
    if type(value) is not dict:
        return f"The arguments must be a JSON object, not {_name_type(value)}; the tool was not run."
    try:
        orjson.dumps(value)
        if strict:
            json.dumps(value, allow_nan=False)
    except ValueError as error:
        return f"The arguments cannot be used ({error}); the tool was not run."
    except TypeError as error:
        cause = str(error)
        if "Recursion" in cause:
            cause = "they are nested too deeply"
        return f"The arguments cannot be used ({cause}); the tool was not run."
    return ""


def _explain(error: orjson.JSONDecodeError, raw: str | bytes) -> str:
    where = f"at character {error.pos} of {len(raw)}"
    if "depth" in error.msg or "recursion" in error.msg:
        return f"The arguments are nested too deeply ({where}); the tool was not run. Send a flatter object."
    if error.pos >= len(raw):
        return f"The arguments were cut off {where}; the tool was not run. Send them in full, or in smaller parts."
    shown = raw[max(0, error.pos - 20) : error.pos + 20]
    near = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown
    return f"The arguments are not valid JSON: {error.msg} {where}, near {near!a}; the tool was not run."


def _name_type(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    names: dict[type, str] = {list: "an array", str: "a string", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(value), "something else")


def _find_duplicate(raw: str | bytes) -> str:
    found: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        parsed = dict(pairs)
        if len(parsed) != len(pairs) and not found:
            seen: set[str] = set()
            found.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return parsed

    try:
        json.loads(raw, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        return ""
    return found[0][:80] if found else ""


REPLY_LIMIT_CHARS = 8 << 20
_FULL_NOTE = "\n\n[The reply was cut off here: it is longer than 8 MiB.]"
_CUT_BY_LENGTH = (
    "The reply reached its length limit inside or right after this call, so its arguments may be incomplete; the tool "
    "was not run. Send the call again, in smaller parts if it is large."
)
_SHAPE_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)


class ReplyReader:
    """Collects one reply while it is received."""

    def __init__(self, info: ModelInfo, draft: Draft) -> None:
        self.info = info
        self.draft = draft
        self.is_complete = False
        """The reply is complete, though more may come."""
        self.is_done = False
        """Nothing more is needed."""
        self.may_end = info.compat.get("supportsFinishReason") is False
        """The regular end of the stream alone makes the reply complete."""
        self.raw_stop = ""
        self.response_id: str | UnsetType = UNSET
        self.response_model: str | UnsetType = UNSET
        self.faults: dict[str, str] = {}
        self.refusal = ""
        """The provider's refusal, if it came apart from the stop reason."""
        self.headers: Mapping[str, str] = {}
        """Those of the response."""
        self._call_ids: set[str] = set()
        self._last_call_id = ""
        self._chars = 0
        self._is_full = False
        self._was_odd = False

    def take(self, payload: bytes) -> bool:
        """Process one event of a stream; False if it was only a keep-alive. Raises ProviderError."""
        if payload.startswith(b"[DONE]"):
            self.is_complete = self.is_done = True
            return True
        try:
            event = self._load(payload)
            if type(event) is list and event:
                return any([self.read_event(item) for item in event])
            return self.read_event(event)
        except _SHAPE_ERRORS as error:
            raise ProviderError(self._unreadable(payload, error)) from error

    def take_whole(self, body: bytes) -> None:
        """Process a reply that came in one piece. Raises ProviderError."""
        try:
            data = self._load(body)
            # Gemini answers with a list of events if the request for a stream was not understood.
            for item in data if type(data) is list and data else [data]:
                self.raise_error(item)
                self.read_whole(item)
        except _SHAPE_ERRORS as error:
            raise ProviderError(self._unreadable(body, error)) from error
        self.is_complete = self.is_done = True

    def finish(self) -> Reply:
        """The complete reply. Raises ProviderError."""
        self.close_open()
        if self._is_full:
            stop: StopReason = "length"
            failure = None
        else:
            stop, failure = self.judge()
            if failure is None and not self.raw_stop and (self.faults or not self.draft.has_content):
                # Many servers give no stop reason, which is accepted unless the reply is empty or cut off.
                failure = fail(self.info, "truncated", "the reply ended without a finish reason")
        if failure is None and self.refusal:
            failure = fail(self.info, "refused", self.refusal)
        if failure is not None:
            return self.fail(failure)
        if stop == "length" and self._last_call_id:
            self.faults.setdefault(self._last_call_id, _CUT_BY_LENGTH)
        if stop in ("stop", "toolUse"):
            stop = "toolUse" if self._call_ids else "stop"
        return Reply(self._finish_draft(stop), None, self.faults)

    def fail(self, failure: Failure) -> Reply:
        """The reply so far, as a failed one."""
        return Reply(self._finish_draft("error", failure.message), failure, self.faults)

    def read_event(self, event: Any) -> bool:
        """Read one parsed event; False if it was only a keep-alive."""
        raise NotImplementedError

    def read_whole(self, data: Any) -> None:
        raise NotImplementedError

    def raise_error(self, event: Any) -> None:
        """Raises ProviderError if the event is an error, in any of the forms that servers use."""
        error, kind = event.get("error"), f"{event.get('type') or ''}{event.get('object') or ''}"
        if not error and ("error" in kind if kind else isinstance(event.get("message", event.get("detail")), str)):
            error = event
        if error:
            raise ProviderError(classify_event(self.info, error, self.headers))

    def judge(self) -> tuple[StopReason, Failure | None]:
        """Interpret the provider's stop reason."""
        raise NotImplementedError

    def close_open(self) -> None:
        """End blocks that the wire format does not end itself."""

    def open_text(self) -> int:
        self._last_call_id = ""
        return self.draft.open_text()

    def open_thinking(self) -> int:
        self._last_call_id = ""
        return self.draft.open_thinking()

    def open_call(self, call_id: str, name: str) -> tuple[int, str]:
        """Begin a tool call with an id that is unique in the reply."""
        base = unique = call_id or f"call_{len(self._call_ids) + 1}"
        number = 1
        while unique in self._call_ids:
            number += 1
            unique = f"{base}_{number}"
        self._call_ids.add(unique)
        return self.draft.open_call(unique, name), unique

    def write(self, index: int, piece: str) -> None:
        """Append to a block, up to the size limit of a reply."""
        self._chars += len(piece)
        if self._chars <= REPLY_LIMIT_CHARS:
            self.draft.add(index, piece)
        elif not self._is_full:
            self._is_full = self.is_complete = self.is_done = True
            self.draft.add(index, piece[: REPLY_LIMIT_CHARS - self._chars + len(piece)])
            self.draft.add(index, _FULL_NOTE)

    def close_call(
        self,
        index: int,
        call_id: str,
        name: str,
        arguments: str | dict[str, Any],
        *,
        signature: str | UnsetType = UNSET,
        namespace: str | UnsetType = UNSET,
    ) -> None:
        """End a tool call; unusable arguments become a fault."""
        if isinstance(arguments, str):
            parsed, fault = parse_arguments(arguments)
        else:
            fault = check_arguments(arguments, strict=self._was_odd)
            parsed = {} if fault else arguments
        if fault:
            self.faults[call_id] = fault
        self._last_call_id = call_id
        self.draft.close_call(index, ToolCall(call_id, name, parsed, signature, namespace))

    def set_usage(
        self, *, fresh: int, output: int, cache_read: int = 0, cache_write: int = 0, thought: Any = None
    ) -> None:
        """Set the token counts and their cost; `thought` is the number of thinking tokens as reported."""
        reasoning = UNSET if thought is None else count_tokens(thought)
        self.draft.usage = to_usage(self.info.cost, fresh, output, cache_read, cache_write, reasoning)

    def set_response(self, response_id: Any, model: Any) -> None:
        """Set the provider's id of the reply, and the actual model if it is another one."""
        if isinstance(response_id, str) and response_id:
            self.response_id = response_id
        if isinstance(model, str) and model and model != self.info.id:
            self.response_model = model

    def refuse(self, text: str) -> tuple[StopReason, Failure | None]:
        return "error", fail(self.info, "refused", text)

    def _finish_draft(self, stop: StopReason, error: str | UnsetType = UNSET) -> Any:
        return self.draft.finish(
            stop,
            error=error,
            response_id=self.response_id,
            response_model=self.response_model,
            raw_stop_reason=self.raw_stop or UNSET,
        )

    def _load(self, payload: bytes) -> Any:
        try:
            return orjson.loads(payload)
        except ValueError:
            # json accepts what orjson refuses (NaN, lone surrogates): then only the affected call becomes a fault, not
            # the whole reply.
            self._was_odd = True
            return json.loads(payload.decode("utf-8", "replace"))

    def _unreadable(self, payload: bytes, error: Exception) -> Failure:
        shown = ascii(payload[:80].decode("utf-8", "replace"))
        note = f"an answer that cannot be read ({type(error).__name__}): {shown}"
        return fail(self.info, "protocol", note, retryable=True, advice="is the base URL that of this API?")
