"""Convert errors of a provider or the network to a Failure: its kind, whether to retry, and a line for the user.

Pure. This file must not know HTTP clients, or wire formats beyond the forms of their errors.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import structs

from retinue.core.model import Failure, FailureKind, ModelInfo
from retinue.models.reset_time import LONGEST_S, find_reset_s, parse_date, read_date_s

_DETAIL_CHARS = 400

RETRYABLE: frozenset[FailureKind] = frozenset({"rate", "overloaded", "network", "timeout", "stalled", "truncated"})

_ADVICE: dict[FailureKind, str] = {
    "auth": "check the API key and what it is allowed to use",
    "missing": "check the model's name and the base URL",
    "request": "the provider does not accept this request",
    "overflow": "the conversation is too long for this model: compact it or choose one with a larger context",
    "refused": "the provider declined to answer: rephrase the request or choose another model",
}

# Messages of various providers for input that is too long.
_OVERFLOW = (
    r"(?i)prompt is too long|prompt too long|request_too_large|input is too long"
    r"|exceeds? (?:the )?context (?:window|length)|exceeds? (?:the )?(?:model'?s )?maximum context length"
    r"|input token count.{0,60}exceeds|maximum prompt length is|reduce the length of the messages"
    r"|maximum context length is|exceeds? (?:the )?maximum allowed input length"
    r"|is longer than the model'?s context length|exceeds the limit of \d+"
    r"|exceeds? the available context size|greater than the context length|context window exceeds"
    r"|exceeded model token limit|too large for model with|but the configured context size is"
    r"|context.?window.?exceed|context[_ ]length[_ ]exceeded|range of input length should be"
    r"|longer than the maximum model length|greater than max_seq_len|tokens \+ .?max_new_tokens.? must be"
    r"|context the overflows|loaded with context length"
    r"|exceed_context_size|too many (?:input )?tokens|token limit exceeded"
)
_NOT_OVERFLOW = r"(?i)rate.?limit|too many requests|throttl|per minute"
# An empty account; a time in such a refusal does not help.
_NO_CREDIT = (
    r"(?i)insufficient_quota|insufficient (?:credit|balance|funds)|out of (?:budget|credit)|credit balance"
    r"|billing_error|billing.hard.limit|billing_not_active|payment required|requires more credits|usage_not_included"
    r"|credits? (?:are|is|have been|has been) (?:depleted|exhausted|used up)|used all available credits"
    r"|have any credits|spend(?:ing)? (?:cap|limit)|exceeded_current_quota_error|arrearage|account suspended"
)
# Also an empty account, unless the provider says when it can be asked again: some word a rate limit like this.
_NO_QUOTA = r"(?i)exceeded your current quota|quota exceeded|billing|payment|usage[ _]limit[ _]reached"
_USAGE_LIMIT = r"(?i)usage[ _]limit"

_NO_NAMES = ("", "error", "None")
# Error types and codes of the APIs, in error bodies and in error events inside a stream.
_NAMES: dict[FailureKind, str] = {
    "overloaded": "overloaded_error api_error server_error internal_server_error internal_error internal unavailable "
    "service_unavailable server_overloaded slow_down bad_gateway",
    "timeout": "timeout_error deadline_exceeded gateway_timeout",
    "rate": "rate_limit_error rate_limit_exceeded resource_exhausted too_many_requests usage_limit_reached",
    "auth": "authentication_error permission_error permission_denied unauthenticated invalid_api_key billing_error",
    "missing": "not_found_error not_found model_not_found",
    "request": "invalid_request_error invalid_argument failed_precondition",
    "overflow": "request_too_large context_length_exceeded",
    "refused": "content_filter invalid_prompt",
}
_NAMED = {name: kind for kind, names in _NAMES.items() for name in names.split()}


class ProviderError(Exception):
    """Carries a Failure out of a call; must not leave an adapter."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def fail(
    info: ModelInfo,
    kind: FailureKind,
    text: str,
    *,
    status: int | None = None,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
    advice: str | None = None,
) -> Failure:
    """A Failure whose message names the model and says what to do."""
    line = f"{info.ref}: {text.strip().rstrip('.') or kind}"
    todo = _ADVICE.get(kind, "") if advice is None else advice
    return Failure(
        kind=kind,
        message=f"{line}; {todo}" if todo else line,
        retryable=kind in RETRYABLE if retryable is None else retryable,
        status=status,
        retry_after_s=retry_after_s,
    )


def classify_response(info: ModelInfo, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """The Failure for an HTTP response that is not a success."""
    error = _parse_error(body)
    detail = _describe(error) if error is not None else _plain_text(body)
    request_id = headers.get("request-id") or headers.get("x-request-id") or headers.get("x-goog-request-id") or ""
    text = f"HTTP {status}" + (f" (request {request_id[:80]})" if request_id else "")
    text += f": {detail}" if detail else ""
    if 300 <= status < 400:
        target = headers.get("location", "")[:120]
        note = f"HTTP {status} redirects to {target!r}, which is not followed with credentials"
        return fail(info, "protocol", note, status=status, advice="set the provider's base URL to the final address")
    now_s = _read_clock_s(headers)
    told_s = parse_retry_after(headers, now_s) or find_reset_s(headers, error, detail, now_s)
    return _fail_by_kind(info, _kind_of_status(status, detail), text, status, told_s)


def classify_event(info: ModelInfo, error: Any, headers: Mapping[str, str] = {}) -> Failure:
    """The Failure for an error inside a successful response, which has these headers."""
    holder = error if isinstance(error, dict) else {"message": str(error)}
    detail = _describe(holder)
    told_s = find_reset_s({}, holder, detail, _read_clock_s(headers))
    code = holder.get("code")
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    if type(code) is int and 400 <= code < 600:
        return _fail_by_kind(info, _kind_of_status(code, detail), detail, code, told_s)
    kind: FailureKind = "overloaded"
    for name in (code, holder.get("type"), holder.get("status")):
        if isinstance(name, str) and name.lower() in _NAMED:
            kind = _NAMED[name.lower()]
            break
    if _is_overflow(detail):
        kind = "overflow"
    return _fail_by_kind(info, kind, detail or "the provider reported an error without saying which", None, told_s)


def parse_retry_after(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Seconds to wait according to the headers, in any of the common forms; None if absent or invalid."""
    for name, factor in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds: float | None = float(value) * factor
        except ValueError:
            seconds = read_date_s(value, time.time() if now_s is None else now_s)
        if seconds is not None and 0 <= seconds < float("inf"):
            return min(seconds, LONGEST_S)
    return None


def redact_failure(failure: Failure, secrets: tuple[str, ...]) -> Failure:
    message = failure.message
    for secret in secrets:
        if len(secret) >= 4:
            message = message.replace(secret, "[key]")
    return structs.replace(failure, message=message)


def _read_clock_s(headers: Mapping[str, str]) -> float:
    """The provider's time: it names moments by its own clock, and ours may be wrong."""
    return parse_date(headers.get("date") or "") or time.time()


def _fail_by_kind(
    info: ModelInfo, kind: FailureKind, text: str, status: int | None, retry_after_s: float | None
) -> Failure:
    is_refused = kind in ("rate", "overloaded")
    if (is_refused and retry_after_s is None and re.search(_NO_QUOTA, text)) or (
        (is_refused or kind in ("request", "auth")) and (status == 402 or re.search(_NO_CREDIT, text))
    ):
        advice = "the account has no credit or quota left for this; add credit, or choose another model or key"
        if re.search(_USAGE_LIMIT, text) and status != 402 and not re.search(_NO_CREDIT, text):
            advice = "the provider does not say until when; try later, or choose another model or key"
        return fail(info, "rate", text, status=status, retryable=False, advice=advice)
    if kind in ("request", "auth") and retry_after_s is not None and re.search(_USAGE_LIMIT, text):
        kind = "rate"  # Anthropic answers 400 if the limit that the customer has set is reached
    return fail(info, kind, text, status=status, retry_after_s=retry_after_s)


def _kind_of_status(status: int, detail: str) -> FailureKind:
    if status == 429:
        return "rate"
    if status == 408:
        return "timeout"
    if status in (401, 402, 403):
        return "auth"
    if status in (404, 405, 410):
        return "missing"
    if status == 413 or (status < 500 and _is_overflow(detail)):
        return "overflow"
    if status in (409, 425) or (status >= 500 and status not in (501, 505)):
        # llama.cpp and some gateways answer 500 if the context is too long: a retry would not help.
        return "overflow" if _is_overflow(detail) else "overloaded"
    return "request" if status >= 400 else "protocol"


def _is_overflow(detail: str) -> bool:
    return bool(re.search(_OVERFLOW, detail)) and not re.search(_NOT_OVERFLOW, detail)


def _parse_error(body: bytes) -> dict[str, Any] | None:
    try:
        # LiteLLM sends some errors as a stream event.
        data = orjson.loads(body.removeprefix(b"data:").partition(b"\n\n")[0] if body.startswith(b"data:") else body)
    except ValueError:
        return None
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    for inner in (data.get("detail"), data.get("error")):
        if isinstance(inner, dict):
            return inner
    return {"message": inner} if isinstance(inner, str) else data


def _describe(error: Mapping[str, Any]) -> str:
    given = [error.get(key) for key in ("type", "code", "status")]
    named = [name for name in given if isinstance(name, str) and name not in _NO_NAMES]
    message = next((error[key] for key in ("message", "detail", "error") if isinstance(error.get(key), str)), "")
    # OpenRouter wraps the message of the upstream provider.
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    text = " ".join(part for part in (message, raw if isinstance(raw, str) else "") if part)
    name = next((name for name in named if name not in text), "")
    return _one_line(f"{name}: {text}" if name and text else name or text)


def _plain_text(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace")
    if "<" in text:
        title = re.search(r"<title[^>]*>([^<]*)", text, re.IGNORECASE)
        text = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    return _one_line(text)


def _one_line(text: str) -> str:
    # Remove control characters and line breaks: a terminal shows this line.
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _DETAIL_CHARS else line[: _DETAIL_CHARS - 1] + "…"
