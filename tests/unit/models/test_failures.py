import pytest

from retinue.core.model import Failure, ModelInfo
from retinue.models.failures import classify_event, classify_response, parse_retry_after, redact_failure

INFO = ModelInfo("prov", "model", "anthropic-messages")

OVERFLOWS = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "Your input exceeds the context window of this model",
    "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "Input length 9 exceeds the maximum allowed input length of 8 tokens.",
    "Range of input length should be [1, 100]",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - no",
    "Context Window exceeded for given call. No context_window_fallbacks set",
    "request (6031 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Requested tokens (5000) exceed context window of 4096",
    "the input length exceeds the context length",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096",
    "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
    "Prompt length 5000 is greater than max_seq_len 4096",
]


@pytest.mark.parametrize("text", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 500])
def test_overflow_texts_are_known(text, status):
    body = b'{"error": {"message": "%b", "type": "invalid_request_error"}}' % text.encode()
    failure = classify_response(INFO, status, {}, body)
    assert (failure.kind, failure.retryable) == ("overflow", False)


def test_token_rate_limit_is_no_overflow():
    failure = classify_event(INFO, {"type": "rate_limit_error", "message": "too many tokens per minute"})
    assert (failure.kind, failure.retryable) == ("rate", True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}',
        b'{"error": {"message": "Your credit balance is too low", "type": "rate_limit_error"}}',
    ],
)
def test_empty_account_is_not_repeated(body):
    failure = classify_response(INFO, 429, {}, body)
    assert (failure.kind, failure.retryable) == ("rate", False)
    assert "no credit or quota" in failure.message


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error": {"message": "m", "type": "t"}}', ": t: m"),
        (b'{"error": "plain"}', ": plain"),
        (b'data: {"error": {"message": "m", "type": "t", "code": "500"}}\n\ndata: [DONE]\n\n', ": t: m"),
        (b'{"detail": "of fastapi"}', ": of fastapi"),
        (b'[{"error": {"code": 400, "message": "g", "status": "INVALID_ARGUMENT"}}]', ": INVALID_ARGUMENT: g"),
        (b"<html><title>413 Too big</title>x</html>", ": 413 Too big"),
        (b"just text\x1b[31m\nline", ": just text [31m line"),
        (b"", ""),
        (b"\xff\xfe", ": \ufffd\ufffd"),
        (b'{"error": {"message": "up", "metadata": {"raw": "down"}}}', ": up down"),
    ],
)
def test_error_bodies_become_one_line(body, detail):
    message = classify_response(INFO, 422, {"request-id": "r1"}, body).message
    assert message == f"prov/model: HTTP 422 (request r1){detail}; the provider does not accept this request"


def test_long_error_is_bounded():
    assert len(classify_response(INFO, 400, {}, b"x" * 100_000).message) < 600


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "api_error", "message": "Internal"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "x"}, "rate"),
        ({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x"}, "rate"),
        ({"code": "rate_limit_exceeded", "message": "x"}, "rate"),
        ({"code": 503, "message": "x"}, "overloaded"),
        ({"type": "authentication_error", "message": "x"}, "auth"),
        ({"type": "invalid_request_error", "message": "x"}, "request"),
        ({"code": "context_length_exceeded", "message": "x"}, "overflow"),
        ("something broke", "overloaded"),
        (None, "overloaded"),
    ],
)
def test_error_events_have_a_kind(error, kind):
    assert classify_event(INFO, error).kind == kind


def test_google_says_when_to_return():
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}
    failure = classify_event(INFO, {"code": 429, "message": "x", "details": [{"reason": "y"}, detail]})
    assert failure.retry_after_s == 17.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e99"}, 1e9),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "x", "retry-after": "4"}, 4),
    ],
)
def test_retry_after_in_all_forms(headers, seconds):
    assert parse_retry_after(headers, now_s=60) == seconds


def test_secrets_are_taken_out():
    failure = Failure("auth", "bad key sk-123456 and token abcdefgh", status=401)
    assert redact_failure(failure, ("sk-123456", "abcdefgh", "")) == Failure(
        "auth", "bad key [key] and token [key]", status=401
    )
