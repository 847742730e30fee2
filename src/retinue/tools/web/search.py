"""The web_search tool: runs several queries, and optionally fetches the pages of the results."""

from functools import cached_property
from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.registry import load_description, render_answer, render_failure
from retinue.tools.web.session import NOTE, Pager, WebSession, merge_texts

MAX_QUERIES = 5
MAX_QUERY_CHARS = 1000


class WebSearchTool:
    effect = Effect.NETWORK
    hint = "Search the web"
    guidelines: tuple[str, ...] = ()

    def __init__(self, web: WebSession) -> None:
        self._web = web
        self._options = web.options

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "query": {"type": "string", "description": "What to search for"},
            "queries": {"type": "array", "items": {"type": "string"}, "description": f"Several, at most {MAX_QUERIES}"},
            "numResults": {"type": "number", "description": f"Results per query, at most {self._options.max_results}"},
            "includeContent": {"type": "boolean", "description": "Fetch the text of each result, too"},
        }
        return ToolSpec("web_search", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run all queries; if one fails, the call fails."""
        from retinue.tools.web.providers import SearchFailed

        queries = merge_texts(arguments.get("query"), arguments.get("queries"))[:MAX_QUERIES]
        if not queries:
            return render_failure("WEB_SEARCH_INVALID_QUERY", "web_search requires a non-empty query or queries")
        if any(len(query) > MAX_QUERY_CHARS for query in queries):
            text = f"a query has more than {MAX_QUERY_CHARS} characters; search for fewer words"
            return render_failure("WEB_SEARCH_INVALID_QUERY", text)
        if any("\ud800" <= character <= "\udfff" for query in queries for character in query):
            return render_failure("WEB_SEARCH_INVALID_QUERY", "a query contains an incomplete character")
        count = self._choose_count(arguments.get("numResults"))
        found: list[dict[str, Any]] = []
        try:
            for query in queries:
                answer = await self._web.searcher.search(query, count)
                found.append({"query": answer.query, "results": [hit.to_data() for hit in answer.hits]})
        except SearchFailed as error:
            return render_failure(error.code, str(error), **({"provider": error.provider} if error.provider else {}))
        if arguments.get("includeContent") is True:
            await self._add_contents([hit for query in found for hit in query["results"]])
        stored = self._web.store.add("search", found)
        pager = Pager(self._options.max_chars)
        shown = [pager.cut_query(query) for query in found]
        return render_answer({"responseId": stored.id, "provider": answer.provider, "queries": shown}, note=NOTE)

    def _choose_count(self, asked: Any) -> int:
        import math

        most = self._options.max_results
        if isinstance(asked, bool) or not isinstance(asked, int | float) or not math.isfinite(asked):
            return most
        return min(max(math.floor(asked), 1), most)

    async def _add_contents(self, hits: list[dict[str, Any]]) -> None:
        """Fetch the page of each result concurrently; results that fail stay without content."""
        import asyncio

        from retinue.tools.outbound.request import RequestFailed
        from retinue.tools.web.session import QueueFull

        waiting = iter(hits)

        async def work() -> None:
            for hit in waiting:
                try:
                    fetched = await self._web.fetcher.fetch(hit["url"])
                except (RequestFailed, QueueFull):
                    continue
                hit["content"] = fetched.to_data()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.max_concurrent, len(hits))):
                group.create_task(work())
