"""The fetch_content tool: returns web pages as text."""

from functools import cached_property
from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.registry import load_description, render_answer, render_failure
from retinue.tools.web.session import NOTE, Pager, WebSession, merge_texts

MAX_URLS = 10
_CODES = {
    "url": "CONTENT_FETCH_INVALID_URL",
    "scheme": "CONTENT_FETCH_INVALID_URL",
    "timeout": "CONTENT_FETCH_TIMEOUT",
}


class FetchContentTool:
    effect = Effect.NETWORK
    hint = "Fetch web pages as text"
    guidelines: tuple[str, ...] = ()

    def __init__(self, web: WebSession) -> None:
        self._web = web

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "url": {"type": "string", "description": "An http or https address"},
            "urls": {"type": "array", "items": {"type": "string"}, "description": f"Several, at most {MAX_URLS}"},
            "preferReader": {"type": "boolean", "description": "Ask a reader service for pages that need a browser"},
        }
        return ToolSpec("fetch_content", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Fetch all URLs in sequence; if one fails, the call fails."""
        from retinue.tools.outbound.request import RequestFailed
        from retinue.tools.web.session import QueueFull

        urls = merge_texts(arguments.get("url"), arguments.get("urls"))
        if not urls:
            return render_failure("INVALID_INPUT", "fetch_content requires url or urls")
        if len(urls) > MAX_URLS:
            return render_failure("INVALID_INPUT", f"fetch_content takes at most {MAX_URLS} urls, not {len(urls)}")
        pages: list[dict[str, Any]] = []
        for url in urls:
            try:
                fetched = await self._web.fetcher.fetch(url, prefer_reader=arguments.get("preferReader") is True)
            except (RequestFailed, QueueFull) as error:
                kind = error.kind if isinstance(error, RequestFailed) else ""
                return render_failure(_CODES.get(kind, "CONTENT_FETCH_FAILED"), str(error))
            pages.append(fetched.to_data())
        stored = self._web.store.add("fetch", pages)
        pager = Pager(self._web.options.max_chars)
        return render_answer({"responseId": stored.id, "results": [pager.cut_page(page) for page in pages]}, note=NOTE)
