"""Settings of the `subagent`, web, convert and LSP tools, with devkit-pi's names: sections of subagents.json.

The docstring under a field is its documentation. Must not know files, layers or who uses a setting.
"""

from typing import Any, Literal

from msgspec import Struct, structs

from retinue.settings.checks import Check, Report, Setting, between, choice, count, flag, names, some_of, trimmed

LSP_ACTIONS = (
    "definition",
    "references",
    "hover",
    "signature",
    "symbols",
    "diagnostics",
    "workspace-diagnostics",
    "servers",
)
"""Language server actions that agents may use by default: all that change nothing."""
PROVIDERS = ("tavily", "serper", "brave", "openserp", "searxng", "ddgs")
HookMode = Literal["agent_end", "edit_write", "disabled"]
Debug = Literal[False, "minimal", "verbose"]


class SubagentRetrySettings(Struct, frozen=True):
    """Retries after an agent of the `subagent` tool fails."""

    enabled: bool = True
    """Retry an agent after a temporary failure."""
    max_attempts: int = 2
    """Number of attempts including the first."""


class SubagentToolSettings(Struct, frozen=True):
    """The `subagent` tool and the agents it starts."""

    enabled: bool = True
    """Offer the `subagent` tool if its surface is chosen."""
    max_depth: int = 1
    """Maximum nesting depth of agents; 0 forbids even the first. `PI_SUBAGENT_MAX_DEPTH` wins."""
    timeout_ms: int = 900_000
    """Maximum run time of one agent."""
    idle_timeout_ms: int = 180_000
    """Maximum time of one agent without any output."""
    allow_write: bool = False
    """Give agents that are not read-only the tools that change things."""
    allow_lsp_tools: bool = True
    """Give agents the `lsp` tool if they list it."""
    allowed_lsp_actions: tuple[str, ...] = LSP_ACTIONS
    """Language server actions that agents may use; an empty list removes the tool."""
    inject_delegation_policy: bool = True
    """Tell the main agent when to delegate."""
    retry: SubagentRetrySettings = SubagentRetrySettings()
    readonly_bash: bool = False
    """Count sandboxed `bash` as a read-only tool."""


class WebCache(Struct, frozen=True):
    """Cache of search results."""

    enabled: bool = False
    """Cache search results."""
    max_entries: int = 50
    """Maximum number of cached results."""
    ttl_ms: int = 300_000
    """How long a result is cached."""


class WebConcurrency(Struct, frozen=True):
    """Limits on simultaneous requests."""

    max_concurrent: int = 3
    """Maximum number of simultaneous requests."""
    max_queue_size: int = 10
    """Maximum number of waiting requests."""


class KeyedProvider(Struct, frozen=True):
    """A search provider that needs a key."""

    base_url: str
    """The provider's URL."""
    api_key_env: str
    """The environment variable that holds the provider's key."""
    enabled: bool = False
    """Allow searches with this provider."""


class SearxngSettings(Struct, frozen=True):
    """A SearXNG server."""

    enabled: bool = False
    """Allow searches with this server."""
    base_url: str = ""
    """The server's URL."""
    default_engine: str = "google"
    """The search engine that the server uses."""


class WebSettings(Struct, frozen=True):
    """The web tools."""

    enabled: bool = True
    """Offer `web_search`, `fetch_content` and `get_search_content`."""
    provider: str = "ddgs"
    """The search provider; `auto` tries them in order."""
    provider_priority: tuple[str, ...] = PROVIDERS
    """The order in which `auto` tries the providers."""
    timeout_ms: int = 10_000
    """Timeout of one request."""
    max_response_bytes: int = 1_048_576
    """Maximum download size of a page."""
    max_content_chars: int = 30_000
    """Maximum text of a page that the model sees at once."""
    max_results: int = 5
    """Maximum number of results per search."""
    enable_jina_fallback: bool = False
    """Let an external service (Jina) render pages that are empty without a browser."""
    jina_timeout_ms: int = 8_000
    """Timeout of the Jina service."""
    jina_triggers: tuple[str, ...] = ("short-html", "js-heavy-html")
    """Which pages the Jina service is used for."""
    max_stored_results: int = 100
    """Number of search results that `get_search_content` can return to."""
    max_stored_content_chars: int = 200_000
    """Maximum stored text of each search result."""
    allow_private_network: bool = False
    """Let the tools access this machine and private networks."""
    allowed_hosts: tuple[str, ...] = ()
    """The only hosts, with their subdomains, that pages and documents are loaded from; an empty list allows all."""
    debug: Debug = False
    """Log each web request to `retinue/web.log` in the agent directory: host, outcome, size and time.

    `verbose` adds path and content type, never a query or an answer. true means `minimal`.
    """
    cache: WebCache = WebCache()
    concurrency: WebConcurrency = WebConcurrency()
    openserp: KeyedProvider = KeyedProvider("https://api.openserp.com/search", "OPENSERP_API_KEY")
    searxng: SearxngSettings = SearxngSettings()
    brave: KeyedProvider = KeyedProvider("https://api.search.brave.com/res/v1/web/search", "BRAVE_SEARCH_API_KEY")
    tavily: KeyedProvider = KeyedProvider("https://api.tavily.com/search", "TAVILY_API_KEY")
    serper: KeyedProvider = KeyedProvider("https://google.serper.dev/search", "SERPER_API_KEY")


class ConvertContent(Struct, frozen=True):
    """The `convert_content` tool."""

    enabled: bool = True
    """Offer the `convert_content` tool."""
    command: str = "markitdown"
    """The converter: a name on the search path, or a path. Any program but `markitdown` reads all documents."""
    timeout_ms: int = 30_000
    """Timeout of a conversion."""
    max_response_bytes: int = 10_485_760
    """Maximum size of a document."""
    max_content_chars: int = 50_000
    """Maximum text of a document that the model sees."""
    allow_private_network: bool = False
    """Let the tool load documents from this machine and private networks."""


class LspToolSettings(Struct, frozen=True):
    """The `lsp` tool."""

    enabled: bool = True
    """Offer the `lsp` tool."""
    allow_mutating_actions: bool = False
    """Let the main agent preview renames and code actions, and restart servers."""


class LspHook(Struct, frozen=True):
    """Automatic diagnostics from language servers."""

    enabled: bool = True
    """Report diagnostics to the main agent."""
    mode: HookMode = "agent_end"
    """When to report: after the agent has finished, or after each edit."""


class Lsp(Struct, frozen=True):
    """Language servers."""

    enabled: bool = True
    """Use language servers at all."""
    python: str = "auto"
    """The Python server: `ty`, `pyright`, `basedpyright`, or the first of them that is installed."""
    tool: LspToolSettings = LspToolSettings()
    hook: LspHook = LspHook()


class CommandsSettings(Struct, frozen=True):
    """The `/toolkit` command."""

    enabled: bool = True
    """Offer the `/toolkit` command."""


def resolve_hook(lsp: Lsp) -> Lsp:
    """Switch the hook off completely if either setting switches it off."""
    if lsp.hook.enabled and lsp.hook.mode != "disabled":
        return lsp
    return structs.replace(lsp, hook=LspHook(False, "disabled"))


def _debug() -> Check:
    words = choice("minimal", "verbose")

    def convert(value: Any, report: Report) -> Any:
        if isinstance(value, bool):
            return "minimal" if value else False
        return words.convert(value, report)

    return Check('true, false, "minimal" or "verbose"', convert, choices=(False, "minimal", "verbose"))


def _build_table() -> tuple[Setting, ...]:
    positive = between(1)
    web = (
        Setting("web.enabled", "web.enabled", flag(), off_only=True),
        Setting("web.provider", "web.provider", choice("auto", *PROVIDERS), user_only=True),
        Setting(
            "web.providerPriority", "web.provider_priority", some_of(*PROVIDERS, may_be_empty=False), user_only=True
        ),
        Setting("web.timeoutMs", "web.timeout_ms", positive),
        Setting("web.maxResponseBytes", "web.max_response_bytes", positive),
        Setting("web.maxContentChars", "web.max_content_chars", positive),
        Setting("web.maxResults", "web.max_results", positive),
        Setting("web.enableJinaFallback", "web.enable_jina_fallback", flag(), user_only=True),
        Setting("web.jinaTimeoutMs", "web.jina_timeout_ms", positive),
        Setting("web.jinaTriggers", "web.jina_triggers", names()),
        Setting("web.maxStoredResults", "web.max_stored_results", positive),
        Setting("web.maxStoredContentChars", "web.max_stored_content_chars", positive),
        Setting("web.allowPrivateNetwork", "web.allow_private_network", flag(), user_only=True),
        Setting("web.allowedHosts", "web.allowed_hosts", names(), user_only=True),
        Setting("web.debug", "web.debug", _debug()),
        Setting("web.cache.enabled", "web.cache.enabled", flag()),
        Setting("web.cache.maxEntries", "web.cache.max_entries", positive),
        Setting("web.cache.ttlMs", "web.cache.ttl_ms", positive),
        Setting("web.concurrency.maxConcurrent", "web.concurrency.max_concurrent", positive),
        Setting("web.concurrency.maxQueueSize", "web.concurrency.max_queue_size", positive),
        Setting("web.searxng.enabled", "web.searxng.enabled", flag(), user_only=True),
        Setting("web.searxng.baseUrl", "web.searxng.base_url", trimmed(blank=True), user_only=True),
        Setting("web.searxng.defaultEngine", "web.searxng.default_engine", trimmed(), user_only=True),
    )
    keyed = tuple(
        Setting(f"web.{name}.{key}", f"web.{name}.{field}", check, user_only=True)
        for name in ("openserp", "brave", "tavily", "serper")
        for key, field, check in (
            ("enabled", "enabled", flag()),
            ("baseUrl", "base_url", trimmed()),
            ("apiKeyEnv", "api_key_env", trimmed()),
        )
    )
    return (*_SUBAGENTS, *web, *keyed, *_OTHERS)


_SUBAGENTS = (
    Setting("subagents.enabled", "subagents.enabled", flag(), off_only=True),
    Setting("subagents.maxDepth", "subagents.max_depth", count(), user_only=True),
    Setting("subagents.timeoutMs", "subagents.timeout_ms", between(1)),
    Setting("subagents.idleTimeoutMs", "subagents.idle_timeout_ms", between(1)),
    Setting("subagents.allowWrite", "subagents.allow_write", flag(), user_only=True),
    Setting("subagents.allowLspTools", "subagents.allow_lsp_tools", flag(), off_only=True),
    Setting("subagents.allowedLspActions", "subagents.allowed_lsp_actions", some_of(*LSP_ACTIONS), user_only=True),
    Setting("subagents.injectDelegationPolicy", "subagents.inject_delegation_policy", flag()),
    Setting("subagents.retry.enabled", "subagents.retry.enabled", flag()),
    Setting("subagents.retry.maxAttempts", "subagents.retry.max_attempts", between(1)),
    Setting("subagents.readonlyBash", "subagents.readonly_bash", flag(), user_only=True),
)
_OTHERS = (
    Setting("convertContent.enabled", "convert_content.enabled", flag(), off_only=True),
    Setting("convertContent.command", "convert_content.command", trimmed(), user_only=True),
    Setting("convertContent.timeoutMs", "convert_content.timeout_ms", between(1)),
    Setting("convertContent.maxResponseBytes", "convert_content.max_response_bytes", between(1)),
    Setting("convertContent.maxContentChars", "convert_content.max_content_chars", between(1)),
    Setting("convertContent.allowPrivateNetwork", "convert_content.allow_private_network", flag(), user_only=True),
    Setting("lsp.enabled", "lsp.enabled", flag(), off_only=True),
    Setting("lsp.python", "lsp.python", choice("auto", "ty", "pyright", "basedpyright"), user_only=True),
    Setting("lsp.tool.enabled", "lsp.tool.enabled", flag(), off_only=True),
    Setting("lsp.tool.allowMutatingActions", "lsp.tool.allow_mutating_actions", flag(), user_only=True),
    Setting("lsp.hook.enabled", "lsp.hook.enabled", flag(), off_only=True),
    Setting("lsp.hook.mode", "lsp.hook.mode", choice("agent_end", "edit_write", "disabled"), user_only=True),
    Setting("commands.enabled", "commands.enabled", flag()),
)
DEVKIT_SETTINGS = _build_table()
"""Every setting of these sections by its key in files."""
DEVKIT_IGNORED = frozenset(
    (
        "subagents.projectAgentPolicy",
        "subagents.nonInteractivePolicy",
        "web.connectionPool",
        "convertContent.provider",
        "guards",
    )
)
"""Keys of other versions: accepted, but without effect."""
