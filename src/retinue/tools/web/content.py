"""The get_search_content tool: returns the full text of earlier search and fetch results, page by page."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import is_whole
from retinue.tools.registry import explain_end, explain_offset, load_description, render_answer, render_failure
from retinue.tools.web.session import NOTE, Pager, WebSession

if TYPE_CHECKING:
    from retinue.tools.web.store import Stored

MAX_LISTED = 5


class NotStored(Exception):
    """Raised if a selector matches nothing in the store."""


class GetSearchContentTool:
    effect = Effect.NETWORK
    hint = "Read more of an earlier search result or page"
    guidelines: tuple[str, ...] = ()

    def __init__(self, web: WebSession) -> None:
        self._web = web

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "responseId": {"type": "string", "description": "From a result of web_search or fetch_content"},
            "query": {"type": "string", "description": "One query of a search"},
            "queryIndex": {"type": "integer", "description": "The same by its place, from 0"},
            "url": {"type": "string", "description": "One page that was fetched"},
            "urlIndex": {"type": "integer", "description": "The same by its place, from 0"},
            "offset": {"type": "integer", "description": "First character of each content, from 0; see nextOffset"},
        }
        schema = {"type": "object", "properties": properties, "required": ["responseId"]}
        return ToolSpec("get_search_content", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        response_id = str(arguments.get("responseId") or "").strip()
        if not response_id:
            return render_failure("INVALID_INPUT", "get_search_content requires responseId")
        offset = arguments.get("offset", 0)
        if problem := explain_offset(offset):
            return render_failure("INVALID_INPUT", problem)
        stored = self._web.store.find(response_id)
        if stored is None:
            return render_failure("NOT_FOUND", f"nothing is stored under {quote(response_id)} in this session")
        pager = Pager(self._web.options.max_chars, int(offset))
        try:
            result = _select(stored, arguments, pager)
        except NotStored as error:
            return render_failure("NOT_FOUND", str(error))
        if pager.longest is not None and (problem := explain_end(int(offset), pager.longest)):
            return render_failure("INVALID_INPUT", problem)
        return render_answer({"responseId": response_id, "result": result}, note=NOTE)


def _select(stored: "Stored", arguments: dict[str, Any], pager: Pager) -> dict[str, Any]:
    word, field, whole = ("query", "query", "queries") if stored.kind == "search" else ("url", "url", "results")
    cut = pager.cut_query if stored.kind == "search" else pager.cut_page
    index, text = arguments.get(f"{word}Index"), arguments.get(word)
    names = [str(item.get(field, "")) for item in stored.data]
    if index is not None:
        if not is_whole(index) or index not in range(len(names)):
            raise NotStored(_list_names(f"no {word} at {quote(index)}", names))
        return cut(stored.data[int(index)])
    if isinstance(text, str) and text.strip():
        if text.strip() not in names:
            raise NotStored(_list_names(f"no {word} {quote(text.strip(), 200)}", names))
        return cut(stored.data[names.index(text.strip())])
    return {"type": stored.kind, whole: [cut(item) for item in stored.data]}


def _list_names(text: str, names: list[str]) -> str:
    listed = ", ".join(f"{place}: {quote(name, 120)}" for place, name in enumerate(names[:MAX_LISTED]))
    return f"{text}; stored are {listed}{', …' if len(names) > MAX_LISTED else ''}"
