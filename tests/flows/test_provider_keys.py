import pytest

from retinue.models.adapter import build_model
from retinue.models.governor import Governor
from retinue.models.transport import Transport, find_proxy
from retinue.testing.clock import FakeClock
from tests.flows.provider_world import APIS, open_seat, to_info

EVERY_API = pytest.mark.parametrize("api", APIS)
HEADERS = {
    "anthropic-messages": ("x-api-key", "secret-1"),
    "openai-completions": ("authorization", "Bearer secret-1"),
    "openai-responses": ("authorization", "Bearer secret-1"),
    "google-generative-ai": ("x-goog-api-key", "secret-1"),
}


def rebuild(seat, key, **fields):
    info = to_info(seat.model.info.api, seat.model.info.base_url, **fields)
    governor = Governor(FakeClock())
    seat.model = build_model(info, transport=seat.model._transport, key=key, governor=governor)


@EVERY_API
async def test_key_goes_where_the_api_wants_it(api):
    async with open_seat(api, [{"text": "ok"}], key="secret-1") as seat:
        await seat.ask(watch=False)
    name, value = HEADERS[api]
    assert seat.server.requests[0].headers[name] == value


@EVERY_API
async def test_configured_headers_win(api):
    name, _ = HEADERS[api]
    async with open_seat(api, [{"text": "ok"}], headers={name.title(): "mine", "X-Extra": "1"}) as seat:
        await seat.ask(watch=False)
    sent = seat.server.requests[0].headers
    assert (sent[name], sent["x-extra"]) == ("mine", "1")


@EVERY_API
async def test_no_key_sends_no_key(api):
    async with open_seat(api, [{"text": "ok"}]) as seat:
        rebuild(seat, None)
        assert (await seat.ask(watch=False)).message.text == "ok"
    assert HEADERS[api][0] not in seat.server.requests[0].headers


@EVERY_API
async def test_impossible_key_is_not_shown(api):
    async with open_seat(api, [], key="sk-two\nlines") as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("request", False)
    assert "sk-two" not in failure.message


@EVERY_API
async def test_secret_headers_are_not_shown(api):
    body = {"error": {"message": "token hunter2-hunter2 is bad"}}
    fault = {"kind": "status", "code": 403, "body": body}
    headers = {"X-Auth-Token": "hunter2-hunter2"}
    async with open_seat(api, [{"text": "x", "fault": fault}], headers=headers) as seat:
        assert "hunter2" not in (await seat.ask()).failure.message


async def test_closed_transport_opens_again():
    async with open_seat(APIS[0], [{"text": "ok"}]) as seat:
        await seat.ask(watch=False)
        await seat.model._transport.close()
        assert (await seat.ask(watch=False)).message.text == "ok"


async def test_unused_transport_closes():
    await Transport().close()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("variables", "scheme", "host", "proxy"),
    [
        ({}, "https", "api.example", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https", "api.example", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http", "api.example", None),
        ({"https_proxy": "http://p:1", "no_proxy": "other,.example"}, "https", "api.example", None),
        ({"ALL_PROXY": "http://p:1"}, "http", "api.example", "http://p:1"),
        ({"ALL_PROXY": "socks5://p:1"}, "https", "api.example", None),
        ({"HTTP_PROXY": "http://p:1"}, "http", "127.0.0.1", None),
        ({"HTTP_PROXY": "http://p:1"}, "http", "localhost", None),
    ],
)
def test_proxy_comes_from_the_environment(monkeypatch, variables, scheme, host, proxy):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(scheme, host) == proxy
