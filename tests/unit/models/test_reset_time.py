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


NO_CREDIT = [
    (402, {"type": "billing_error", "message": "no"}),
    (429, {"code": "billing_not_active", "message": "Your account is not active, please check your billing details"}),
    (429, {"type": "exceeded_current_quota_error", "message": "You exceeded your current token quota"}),
    (429, {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."}),
    (429, {"status": "RESOURCE_EXHAUSTED", "message": "Your prepayment credits are depleted."}),
    (429, {"status": "RESOURCE_EXHAUSTED", "message": "Your project has exceeded its monthly spending cap."}),
    (429, {"message": "Your team has either used all available credits or reached its monthly spending limit."}),
    (403, {"message": "Your newly created team doesn't have any credits or licenses yet."}),
    (400, {"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing."}),
    (412, {"message": "Account suspended, possibly due to reaching the monthly spending limit."}),
]


@pytest.mark.parametrize(("status", "error"), NO_CREDIT)
def test_texts_of_empty_accounts_are_known(status, error):
    failure = classify_response(INFO, status, {"retry-after": "7200"}, orjson.dumps({"error": error}))
    assert not failure.retryable and "no credit or quota left" in failure.message


def test_usage_limit_without_a_time_is_no_empty_account():
    failure = classify_response(INFO, 429, {}, orjson.dumps({"error": CODEX}))
    assert not failure.retryable and "does not say until when" in failure.message and "credit" not in failure.message


def test_empty_account_in_a_stream_is_known():
    failure = classify_event(INFO, {"type": "billing_error", "message": "Your credit balance is too low"})
    assert not failure.retryable and "no credit or quota left" in failure.message


CLAUDE = "anthropic-ratelimit-unified"
THERE_S = 1_790_000_000  # 2026-09-21 14:13:20 UTC, a Monday; our clock says something else
UNIFIED = {
    f"{CLAUDE}-status": "rejected",
    f"{CLAUDE}-reset": str(THERE_S + 7200),
    f"{CLAUDE}-5h-status": "rejected",
    f"{CLAUDE}-5h-reset": str(THERE_S + 7200),
    f"{CLAUDE}-7d-status": "allowed_warning",
    f"{CLAUDE}-7d-reset": str(THERE_S + 400_000),
    f"{CLAUDE}-overage-status": "rejected",
    f"{CLAUDE}-overage-reset": str(THERE_S + 900_000),
}
OPENAI = {
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "2h0m0s",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-tokens": "9h0m0s",
}


def per(period, value="20"):
    quota = {"violations": [{"quotaId": f"GenerateRequestsPer{period}PerProjectPerModel", "quotaValue": value}]}
    return {**GEMINI, "details": [quota, {"retryDelay": "36s"}]}


@pytest.mark.parametrize(
    ("headers", "error", "wait_s"),
    [
        ({"retry-after": "Mon, 21 Sep 2026 16:13:20 GMT"}, RATE, 7200),
        ({"retry-after": "7200"}, RATE, 7200),
        (UNIFIED, RATE, 7200),
        (OPENAI, RATE, 7200),
        ({**OPENAI, "x-ratelimit-remaining-requests": "-1"}, RATE, 7200),
        ({**OPENAI, "x-ratelimit-remaining-requests": "3"}, RATE, None),
        ({}, {**CODEX, "resets_at": THERE_S + 7200}, 7200),
        ({}, {**CODEX, "resets_at": "2026-09-21T16:13:20Z"}, 7200),
        ({}, {"message": f"Claude AI usage limit reached|{THERE_S + 7200}"}, 7200),
        ({}, {"message": "You've hit your limit · resets 6:13pm (Europe/Berlin)"}, 7180),
        ({}, {"message": "Access resets at 1:13 PM GMT-3."}, 7180),
        ({}, {"message": "limit reached, resets at 16:13 UTC"}, 7180),
        ({}, {"message": "limit reached, resets 2:13pm (UTC)"}, 0),
        ({}, {"message": "limit reached, resets 2pm (UTC)"}, 85_600),
        ({}, {"message": "Weekly limit reached; resets Sep 23 at 4:13pm (UTC)"}, 2 * 86_400 + 7180),
        ({}, {"message": "try again at Sep 23rd, 2026 4:13 PM UTC."}, 2 * 86_400 + 7180),
        ({}, {"message": "resets Jan 1 at 12am (UTC)"}, 8_761_600),
        ({}, {"message": "Your limit will reset at 2026-09-21 16:13:20"}, 7200),
        ({}, {"message": "available again at 2026-09-21T18:13:20.5+02:00"}, 7200),
        ({}, {"message": "try again in 1 hour, 58 minutes and 120 seconds"}, 7200),
        ({}, {"message": "Please wait 2 hours."}, 7200),
        ({}, {"message": "resets at 25:99 on Feb 31"}, None),
        ({}, per("Day"), 16 * 3600 + 46 * 60 + 40),
        ({}, {**per("Day"), "details": per("Day")["details"][:1]}, 16 * 3600 + 46 * 60 + 40),
        ({}, per("Minute"), 36),
        ({}, per("Day", "0"), 36),
    ],
)
def test_times_are_those_of_the_provider(headers, error, wait_s):
    headers = {**headers, "date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    failure = classify_response(INFO, 429, headers, orjson.dumps({"error": error}))
    assert failure.retryable and failure.retry_after_s == wait_s


def test_time_without_a_zone_is_local(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        headers = {"date": "Mon, 21 Sep 2026 14:13:20 GMT"}
        failure = classify_response(INFO, 429, headers, b"Usage limit reached. Try again at 6:13 PM.")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert failure.retry_after_s == 7180


def test_wrong_date_of_a_provider_does_not_matter():
    failure = classify_response(INFO, 429, {"date": "today", "retry-after": "7200"}, b"{}")
    assert failure.retry_after_s == 7200


def test_limit_in_a_stream_is_known():
    failure = classify_event(INFO, {**CODEX, "resets_in_seconds": 7200})
    assert is_limit(failure, RetryPolicy()) and failure.retry_after_s == 7200
    date = {"date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    assert classify_event(INFO, {**CODEX, "resets_at": THERE_S + 7200}, date).retry_after_s == 7200


def test_limits_are_not_waited_for_without_retries():
    failure = classify_response(INFO, 429, {"retry-after": "7200"}, b"{}")
    assert not is_limit(failure, RetryPolicy(enabled=False))
