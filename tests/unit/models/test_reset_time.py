import time

import orjson
import pytest

from retinue.core.model import ModelInfo
from retinue.models.failures import classify_event, classify_response
from retinue.models.retry import RetryPolicy, is_limit

INFO = ModelInfo("prov", "model", "openai-responses")
NOW_S = time.time()
CODEX = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
GEMINI = {
    "code": 429,
    "status": "RESOURCE_EXHAUSTED",
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerDay"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7200s"},
    ],
}
RATE = {"type": "rate_limit_error", "message": "too much"}
OPENROUTER = {"code": 429, "message": "Rate limit exceeded: free-models-per-day"}
SPEND = "You have reached your specified API usage limits. You will regain access on {} at {} UTC."


def stamp(seconds, form):
    return time.strftime(form, time.gmtime(NOW_S + seconds))


@pytest.mark.parametrize(
    ("status", "headers", "error", "wait_s"),
    [
        (429, {"retry-after": "7200"}, RATE, 7200),
        (429, {"retry-after": stamp(7200, "%a, %d %b %Y %H:%M:%S GMT")}, RATE, 7200),
        (503, {"retry-after": "7200"}, {"message": "maintenance"}, 7200),
        (429, {}, {**CODEX, "resets_at": int(NOW_S) + 7200}, 7200),
        (429, {}, {**CODEX, "resets_in_seconds": 7200}, 7200),
        (429, {}, {**CODEX, "resets_at": stamp(7200, "%Y-%m-%dT%H:%M:%SZ")}, 7200),
        (429, {}, GEMINI, 7200),
        (429, {}, {"detail": {**CODEX, "resets_in_seconds": 7200}}, 7200),
        (429, {"anthropic-ratelimit-unified-reset": str(int(NOW_S) + 7200)}, RATE, 7200),
        (
            429,
            {
                "anthropic-ratelimit-requests-remaining": "9",
                "anthropic-ratelimit-requests-reset": stamp(9000, "%Y-%m-%dT%H:%M:%SZ"),
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": stamp(7200, "%Y-%m-%dT%H:%M:%SZ"),
            },
            RATE,
            7200,
        ),
        (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h59m60s"}, RATE, 7200),
        (429, {"x-ratelimit-reset-requests-day": "7200.5"}, RATE, 7200),
        (429, {"ratelimit-reset": "7200"}, RATE, 7200),
        (429, {}, {**OPENROUTER, "metadata": {"headers": {"X-RateLimit-Reset": str(int(NOW_S + 7200) * 1000)}}}, 7200),
        (429, {}, {"message": f"Claude AI usage limit reached|{int(NOW_S) + 7200}"}, 7200),
        (429, {}, {"message": "Rate limit reached. Please try again in 1h59m60s."}, 7200),
        (400, {}, {"message": SPEND.format(stamp(7200, "%Y-%m-%d"), stamp(7200, "%H:%M"))}, 7170),
    ],
)
def test_limits_of_providers_are_known(status, headers, error, wait_s):
    body = error if "detail" in error else {"error": error}
    failure = classify_response(INFO, status, headers, orjson.dumps(body))
    assert failure.retryable and is_limit(failure, RetryPolicy())
    passed_s = time.time() - NOW_S  # since the times above were made, which may be minutes ago
    assert wait_s - passed_s - 45 <= failure.retry_after_s <= wait_s + 45


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"retry-after": "7"}, RATE),
        ({"x-ratelimit-reset-requests": "12ms", "x-ratelimit-remaining-requests": "0"}, RATE),
        ({}, {**GEMINI, "details": [{"retryDelay": "36s"}]}),
        ({}, {"message": "Please try again in 20s."}),
        ({}, {**CODEX, "resets_at": int(NOW_S) - 50}),
    ],
)
def test_near_resets_are_no_limits(headers, error):
    failure = classify_response(INFO, 429, headers, orjson.dumps({"error": error}))
    assert failure.retryable and not is_limit(failure, RetryPolicy())


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API"}),
        (402, {"message": "This request requires more credits"}),
        (403, {"type": "billing_error", "message": "no"}),
    ],
)
def test_empty_accounts_are_no_limits(status, error):
    failure = classify_response(INFO, status, {"retry-after": "7200"}, orjson.dumps({"error": error}))
    assert not failure.retryable and not is_limit(failure, RetryPolicy())
    assert "no credit or quota left" in failure.message


def test_limit_in_a_stream_is_known():
    failure = classify_event(INFO, {**CODEX, "resets_in_seconds": 7200})
    assert is_limit(failure, RetryPolicy()) and failure.retry_after_s == 7200


def test_limits_are_not_waited_for_without_retries():
    failure = classify_response(INFO, 429, {"retry-after": "7200"}, b"{}")
    assert not is_limit(failure, RetryPolicy(enabled=False))
