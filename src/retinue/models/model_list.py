"""Fetch the list of models from a provider on request, and add it to the catalogue.

Uses urllib, in one thread per provider, since it is a single request. This file must not know files.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson
from msgspec import Struct, structs

from retinue.core.errors import KeyRefused, ModelError
from retinue.core.model import ModelInfo
from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_line
from retinue.models.catalog import Provider, find_relative

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from urllib.error import HTTPError

TIMEOUT_S = 15.0
MOST_PAGES = 20
_LARGEST_REPLY = 16 << 20
_LARGEST_ERROR = 65_536
_PUBLIC_LISTS = ("openrouter", "huggingface", "nvidia")
"""Providers that show their list to anybody, so that it says nothing about a key."""
_BAD_KEY = late_pattern(rb"(?i)api[ _]key[ _](?:not valid|invalid)|(?:incorrect|invalid) api key")
"""Google and xAI answer a wrong key with status 400."""
_KNOWN_KEY = (402, 429)
"""The account has no credit, or asks too often: the key itself is accepted."""
_OTHER_KINDS = late_pattern(
    "embed|whisper|tts|dall-e|moderation|transcri|realtime|image|rerank|audio|speech|sora|veo|imagen|guard|ocr|davinci"
    "|babbage"
)
"""Models that do not answer in text."""
_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len", "max_input_tokens")
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class ListedModel(Struct, frozen=True, rename="camel"):
    """A model as its provider lists it."""

    id: str
    name: str = ""
    context_window: int = 0
    """0 if unknown."""
    max_tokens: int = 0
    like: str = ""
    """Id of the catalogue model whose other properties are assumed for it."""


class ModelList(Struct, frozen=True, rename="camel"):
    base_url: str
    models: tuple[ListedModel, ...] = ()


def add_listed(provider: Provider, found: ModelList) -> Provider:
    def build() -> tuple[ModelInfo, ...]:
        known = {model.id: model for model in provider.models}
        return (*known.values(), *(_to_info(provider, each, known) for each in found.models if each.id not in known))

    return structs.replace(provider, build_models=build)


def _to_info(provider: Provider, listed: ListedModel, known: Mapping[str, ModelInfo]) -> ModelInfo:
    info = provider.guess(listed.id, known.get(listed.like))
    return structs.replace(
        info,
        name=listed.name or listed.id,
        context_window=listed.context_window or info.context_window,
        max_tokens=listed.max_tokens or min(info.max_tokens, listed.context_window or info.max_tokens),
    )


def fetch_list(provider: Provider, unlock: Callable[[], tuple[ModelInfo, str]]) -> ModelList:
    """Fetch a provider's list. Blocks; raises ModelError, and whatever `unlock` raises."""
    info, key = unlock()
    rows: list[Any] = []
    after: dict[str, str] = {}
    for _ in range(MOST_PAGES):
        page = _ask(provider, *_name_request(info, key, after))
        rows += _find_rows(provider, page)
        after = _find_next(page)
        if not after:
            break
    found = {each.id: each for row in rows if (each := _read_row(row)) is not None}
    if not found:
        raise ModelError(f"{provider.id}: the answer lists no text models; check the base URL")
    models = [
        structs.replace(each, like=relative.id if (relative := find_relative(each.id, provider.models)) else "")
        for each in found.values()
    ]
    return ModelList(provider.base_url, tuple(models))


def check_access(provider: Provider, unlock: Callable[[], tuple[ModelInfo, str]]) -> None:
    """Send one cheap request with a key. Blocks; raises KeyRefused, or ModelError if the provider cannot tell."""
    info, key = unlock()
    url, headers = _name_request(info, key, {})
    body = None
    if provider.id in _PUBLIC_LISTS:
        url = f"{info.base_url.rstrip('/')}/chat/completions"
        said = {"model": info.id, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
        body, headers["content-type"] = orjson.dumps(said), "application/json"
    _ask(provider, url, headers, body)


def _name_request(info: ModelInfo, key: str, after: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    base, given = info.base_url.rstrip("/"), {name.lower(): value for name, value in info.headers.items()}
    headers = {"accept": "application/json", "user-agent": "retinue"}
    if info.api == "anthropic-messages":
        headers["anthropic-version"] = "2023-06-01"
        own = {"authorization": f"Bearer {key}"} if key.startswith("sk-ant-oat") else {"x-api-key": key}
        url, query = f"{base.removesuffix('/v1')}/v1/models", {"limit": "1000", **after}
    elif info.api == "google-generative-ai":
        own, url, query = {"x-goog-api-key": key}, f"{base}/models", {"pageSize": "1000", **after}
    else:
        own, url, query = {"authorization": f"Bearer {key}"}, f"{base}/models", dict(after)
    return f"{url}?{urlencode(query)}" if query else url, {**headers, **(own if key else {}), **given}


def _ask(provider: Provider, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Any:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    from retinue.models.transport import find_proxy

    class Stay(HTTPRedirectHandler):
        """Does not follow redirects: they would receive the key."""

        def redirect_request(
            self, req: Request, fp: Any, code: int, msg: str, headers: "HTTPMessage", newurl: str
        ) -> None:
            return None

    parts = urlsplit(url)
    proxy = find_proxy(parts.scheme, parts.hostname or "")
    opener = build_opener(ProxyHandler({parts.scheme: proxy} if proxy else {}), Stay)
    where = f"{provider.id}: {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        with opener.open(Request(url, body, dict(headers)), timeout=TIMEOUT_S) as response:
            return orjson.loads(response.read(_LARGEST_REPLY))
    except HTTPError as error:
        text, said = f"{where} answers with status {error.code}", _read_error(error)
        if error.code in (401, 403) or (error.code == 400 and _BAD_KEY.search(said)):
            raise KeyRefused(f"{text}; check the key") from None
        if body is not None and error.code in _KNOWN_KEY:
            return None
        raise ModelError(text) from None
    except orjson.JSONDecodeError:
        raise ModelError(f"{where} does not answer with JSON; check the base URL") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = escape_line(str(getattr(error, "reason", "") or error or type(error).__name__), 200)
        raise ModelError(f"{where} does not answer ({reason})") from None


def _read_error(answer: "HTTPError") -> bytes:
    from http.client import HTTPException

    try:
        with answer:
            return answer.read(_LARGEST_ERROR)
    except (OSError, HTTPException, ValueError):
        return b""


def _find_rows(provider: Provider, page: Any) -> list[Any]:
    rows = page if isinstance(page, list) else None
    if isinstance(page, dict):
        rows = page["data"] if isinstance(page.get("data"), list) else page.get("models")
    if not isinstance(rows, list):
        raise ModelError(f"{provider.id}: the answer has no list of models; check the base URL")
    return rows


def _find_next(page: Any) -> dict[str, str]:
    if not isinstance(page, dict):
        return {}
    if page.get("has_more") is True and isinstance(page.get("last_id"), str):
        return {"after_id": page["last_id"]}
    token = page.get("nextPageToken")
    return {"pageToken": token} if isinstance(token, str) and token else {}


def _read_row(row: Any) -> ListedModel | None:
    """A model that answers in text; None for any other."""
    raw = row.get("id") or row.get("name") if isinstance(row, dict) else None
    id = raw.removeprefix("models/") if isinstance(raw, str) else ""
    if not id or len(id) > 200 or not id.isprintable() or " " in id or _OTHER_KINDS.search(id.lower()):
        return None
    methods, can = row.get("supportedGenerationMethods"), row.get("capabilities")
    if isinstance(methods, list) and "generateContent" not in methods:
        return None
    if isinstance(can, dict) and can.get("completion_chat") is False:
        return None
    top = row.get("top_provider")
    more = {**row, **{name: value for name, value in (top if isinstance(top, dict) else {}).items() if value}}
    name = next(
        (value for key in ("display_name", "displayName", "name") if isinstance(value := row.get(key), str)), ""
    )
    return ListedModel(
        id,
        "" if name == raw else escape_line(name, 100),
        _find_number(more, (*_WINDOWS, "inputTokenLimit")),
        _find_number(more, (*_OUTPUTS, "outputTokenLimit")),
    )


def _find_number(row: Mapping[str, Any], names: Iterable[str]) -> int:
    numbers = (row.get(name) for name in names)
    return next((each for each in numbers if type(each) is int and 0 < each < 1 << 40), 0)
