"""A server's tool as a Tool: what the model sees of it, and its calls."""

from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.features.mcp.link import Link
from retinue.features.mcp.result import fail_call, to_result
from retinue.features.mcp.tool_list import Listed, clean_text
from retinue.features.mcp.trouble import McpFailed
from retinue.tools.selectors import MCP, Offer


class McpTool:
    """One tool of one server."""

    hint = ""
    guidelines: tuple[str, ...] = ()

    def __init__(self, link: Link, listed: Listed, name: str) -> None:
        self._link = link
        self._listed = listed
        text = listed.description or f"{listed.name} of the MCP server {link.server.name}."
        self.spec = ToolSpec(name, text, listed.schema)

    @property
    def effect(self) -> Effect:
        """What the user vouches for; what a server says of its own harmlessness counts for nothing."""
        return self._link.server.find_effect(self._listed.name)

    @property
    def deferred(self) -> bool:
        """Whether a model is shown it only after it has looked for it."""
        return self._link.server.is_deferred(self._listed.name)

    @property
    def offer(self) -> Offer:
        """Where it comes from."""
        return Offer(self.effect, MCP, self._link.server.name, self._listed.name, is_deferred=self.deferred)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Ask the server, once."""
        name = self._listed.name

        def tell(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            context.progress(ToolResult.of(clean_text(f"{share} {message or ''}".strip(), 500)))

        try:
            answer = await self._link.call(name, arguments, tell)
            return to_result(name, answer, context.spill_dir, context.redact)
        except McpFailed as failure:
            return fail_call(name, f"server '{self._link.server.name}': {failure}")
