"""Settings of the `subagent`, web, convert and LSP tools, with devkit-pi's names: sections of subagents.json.

The docstring under a field is its documentation. Must not know files, layers or who uses a setting.
"""

from typing import Annotated, Any, Literal

from msgspec import Struct, structs

from retinue.core.tool_table import LSP_ACTIONS
from retinue.settings.checks import (
    OFF_ONLY,
    USER_ONLY,
    Check,
    Report,
    between,
    choice,
    count,
    flag,
    names,
    some_of,
    trimmed,
)

PROVIDERS = ("tavily", "serper", "brave", "openserp", "searxng", "ddgs")
HookMode = Literal["agent_end", "edit_write", "disabled"]
Debug = Literal[False, "minimal", "verbose"]


def _debug() -> Check:
    words = choice("minimal", "verbose")

    def convert(value: Any, report: Report) -> Any:
        if isinstance(value, bool):
            return "minimal" if value else False
        return words.convert(value, report)

    return Check('true, false, "minimal" or "verbose"', convert, choices=(False, "minimal", "verbose"))


class SubagentRetrySettings(Struct, frozen=True):
    """Retries after an agent of the `subagent` tool fails."""

    enabled: Annotated[bool, flag()] = True
    """Retry an agent after a temporary failure."""
    max_attempts: Annotated[int, between(1)] = 2
    """Number of attempts including the first."""


class SubagentToolSettings(Struct, frozen=True):
    """The `subagent` tool and the agents it starts."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Offer the `subagent` tool if its surface is chosen."""
    max_depth: Annotated[int, count(), USER_ONLY] = 1
    """Maximum nesting depth of agents; 0 forbids even the first. `PI_SUBAGENT_MAX_DEPTH` wins."""
    timeout_ms: Annotated[int, between(1)] = 900_000
    """Maximum run time of one agent."""
    idle_timeout_ms: Annotated[int, between(1)] = 180_000
    """Maximum time of one agent without any output."""
    allow_write: Annotated[bool, flag(), USER_ONLY] = False
    """Give agents that are not read-only the tools that change things."""
    allow_lsp_tools: Annotated[bool, flag(), OFF_ONLY] = True
    """Give agents the `lsp` tool if they list it."""
    allowed_lsp_actions: Annotated[tuple[str, ...], some_of(*LSP_ACTIONS), USER_ONLY] = LSP_ACTIONS
    """Language server actions that agents may use; an empty list removes the tool."""
    inject_delegation_policy: Annotated[bool, flag()] = True
    """Tell the main agent when to delegate."""
    retry: SubagentRetrySettings = SubagentRetrySettings()
    readonly_bash: Annotated[bool, flag(), USER_ONLY] = False
    """Count sandboxed `bash` as a read-only tool."""


class WebCache(Struct, frozen=True):
    """Cache of search results."""

    enabled: Annotated[bool, flag()] = False
    """Cache search results."""
    max_entries: Annotated[int, between(1)] = 50
    """Maximum number of cached results."""
    ttl_ms: Annotated[int, between(1)] = 300_000
    """How long a result is cached."""


class WebConcurrency(Struct, frozen=True):
    """Limits on simultaneous requests."""

    max_concurrent: Annotated[int, between(1)] = 3
    """Maximum number of simultaneous requests."""
    max_queue_size: Annotated[int, between(1)] = 10
    """Maximum number of waiting requests."""


class KeyedProvider(Struct, frozen=True):
    """A search provider that needs a key."""

    enabled: Annotated[bool, flag(), USER_ONLY] = False
    """Allow searches with this provider."""
    base_url: Annotated[str, trimmed(), USER_ONLY] = ""
    """The provider's URL."""
    api_key_env: Annotated[str, trimmed(), USER_ONLY] = ""
    """The environment variable that holds the provider's key."""


class SearxngSettings(Struct, frozen=True):
    """A SearXNG server."""

    enabled: Annotated[bool, flag(), USER_ONLY] = False
    """Allow searches with this server."""
    base_url: Annotated[str, trimmed(blank=True), USER_ONLY] = ""
    """The server's URL."""
    default_engine: Annotated[str, trimmed(), USER_ONLY] = "google"
    """The search engine that the server uses."""


class WebSettings(Struct, frozen=True):
    """The web tools."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Offer `web_search`, `fetch_content` and `get_search_content`."""
    provider: Annotated[str, choice("auto", *PROVIDERS), USER_ONLY] = "ddgs"
    """The search provider; `auto` tries them in order."""
    provider_priority: Annotated[tuple[str, ...], some_of(*PROVIDERS, may_be_empty=False), USER_ONLY] = PROVIDERS
    """The order in which `auto` tries the providers."""
    timeout_ms: Annotated[int, between(1)] = 10_000
    """Timeout of one request."""
    max_response_bytes: Annotated[int, between(1)] = 1_048_576
    """Maximum download size of a page."""
    max_content_chars: Annotated[int, between(1)] = 30_000
    """Maximum text of a page that the model sees at once."""
    max_results: Annotated[int, between(1)] = 5
    """Maximum number of results per search."""
    enable_jina_fallback: Annotated[bool, flag(), USER_ONLY] = False
    """Let an external service (Jina) render pages that are empty without a browser."""
    jina_timeout_ms: Annotated[int, between(1)] = 8_000
    """Timeout of the Jina service."""
    jina_triggers: Annotated[tuple[str, ...], names()] = ("short-html", "js-heavy-html")
    """Kinds of pages that the Jina service renders."""
    max_stored_results: Annotated[int, between(1)] = 100
    """Number of search results that are kept for `get_search_content`."""
    max_stored_content_chars: Annotated[int, between(1)] = 200_000
    """Maximum stored text of each search result."""
    allow_private_network: Annotated[bool, flag(), USER_ONLY] = False
    """Let the tools access this machine and private networks."""
    allowed_hosts: Annotated[tuple[str, ...], names(), USER_ONLY] = ()
    """The only hosts, with their subdomains, that pages and documents are loaded from; an empty list allows all."""
    debug: Annotated[Debug, _debug()] = False
    """Log each web request to `retinue/web.log` in the agent directory: host, outcome, size and time.

    `verbose` adds path and content type, never a query or an answer. true means `minimal`.
    """
    cache: WebCache = WebCache()
    concurrency: WebConcurrency = WebConcurrency()
    searxng: SearxngSettings = SearxngSettings()
    openserp: KeyedProvider = KeyedProvider(base_url="https://api.openserp.com/search", api_key_env="OPENSERP_API_KEY")
    brave: KeyedProvider = KeyedProvider(
        base_url="https://api.search.brave.com/res/v1/web/search", api_key_env="BRAVE_SEARCH_API_KEY"
    )
    tavily: KeyedProvider = KeyedProvider(base_url="https://api.tavily.com/search", api_key_env="TAVILY_API_KEY")
    serper: KeyedProvider = KeyedProvider(base_url="https://google.serper.dev/search", api_key_env="SERPER_API_KEY")


class ConvertContent(Struct, frozen=True):
    """The `convert_content` tool."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Offer the `convert_content` tool."""
    command: Annotated[str, trimmed(), USER_ONLY] = "markitdown"
    """The converter: a name on the search path, or a path. Any program but `markitdown` reads all documents."""
    timeout_ms: Annotated[int, between(1)] = 30_000
    """Timeout of a conversion."""
    max_response_bytes: Annotated[int, between(1)] = 10_485_760
    """Maximum size of a document."""
    max_content_chars: Annotated[int, between(1)] = 50_000
    """Maximum text of a document that the model sees."""
    allow_private_network: Annotated[bool, flag(), USER_ONLY] = False
    """Let the tool load documents from this machine and private networks."""


class LspToolSettings(Struct, frozen=True):
    """The `lsp` tool."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Offer the `lsp` tool."""
    allow_mutating_actions: Annotated[bool, flag(), USER_ONLY] = False
    """Let the main agent preview renames and code actions, and restart servers."""


class LspHook(Struct, frozen=True):
    """Automatic diagnostics from language servers."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Report diagnostics to the main agent."""
    mode: Annotated[HookMode, choice("agent_end", "edit_write", "disabled"), USER_ONLY] = "agent_end"
    """When to report: after the agent has finished, or after each edit."""


class Lsp(Struct, frozen=True):
    """Language servers."""

    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Use language servers at all."""
    python: Annotated[str, choice("auto", "ty", "pyright", "basedpyright"), USER_ONLY] = "auto"
    """The Python server: `ty`, `pyright`, `basedpyright`, or the first of them that is installed."""
    tool: LspToolSettings = LspToolSettings()
    hook: LspHook = LspHook()


class CommandsSettings(Struct, frozen=True):
    """The `/toolkit` command."""

    enabled: Annotated[bool, flag()] = True
    """Offer the `/toolkit` command."""


def resolve_hook(lsp: Lsp) -> Lsp:
    """Switch the hook off completely if either setting switches it off."""
    if lsp.hook.enabled and lsp.hook.mode != "disabled":
        return lsp
    return structs.replace(lsp, hook=LspHook(False, "disabled"))
