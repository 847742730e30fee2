"""The settings of the `subagent`, web, convert and LSP tools, as devkit-pi names them: sections of subagents.json.

The docstring under a field is its documentation. This file must not know files, layers or who uses a setting.
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
"""What agents may ask a language server by default: all that changes nothing."""
PROVIDERS = ("tavily", "serper", "brave", "openserp", "searxng", "ddgs")
HookMode = Literal["agent_end", "edit_write", "disabled"]
Debug = Literal[False, "minimal", "verbose"]


class SubagentRetrySettings(Struct, frozen=True):
    """What happens after an agent of the `subagent` tool fails."""

    enabled: bool = True
    """Start an agent once more when its failure may pass."""
    max_attempts: int = 2
    """Attempts in all, the first one included."""


class SubagentToolSettings(Struct, frozen=True):
    """The `subagent` tool and the agents it starts."""

    enabled: bool = True
    """Offer the `subagent` tool where the surface is chosen."""
    max_depth: int = 1
    """How deep its agents may nest; 0 forbids even the first. `PI_SUBAGENT_MAX_DEPTH` wins."""
    timeout_ms: int = 900_000
    """How long one agent may work."""
    idle_timeout_ms: int = 180_000
    """How long it may be silent."""
    allow_write: bool = False
    """Give agents that are not read-only the tools that change things."""
    allow_lsp_tools: bool = True
    """Give agents the `lsp` tool when they list it."""
    allowed_lsp_actions: tuple[str, ...] = LSP_ACTIONS
    """What agents may ask a language server; an empty list takes the tool away."""
    inject_delegation_policy: bool = True
    """Tell the main agent when to delegate."""
    retry: SubagentRetrySettings = SubagentRetrySettings()
    readonly_bash: bool = False
    """Count sandboxed `bash` among the read-only tools."""


class WebCache(Struct, frozen=True):
    """Answers of search providers that are kept."""

    enabled: bool = False
    """Keep search results for a while."""
    max_entries: int = 50
    """How many are kept."""
    ttl_ms: int = 300_000
    """For how long."""


class WebConcurrency(Struct, frozen=True):
    """How many requests go out at once."""

    max_concurrent: int = 3
    """Requests at once."""
    max_queue_size: int = 10
    """Requests that may wait."""


class KeyedProvider(Struct, frozen=True):
    """A search provider that wants a key."""

    base_url: str
    """Its address."""
    api_key_env: str
    """The environment variable with its key."""
    enabled: bool = False
    """Let searches use it."""


class SearxngSettings(Struct, frozen=True):
    """A SearXNG server."""

    enabled: bool = False
    """Let searches use it."""
    base_url: str = ""
    """Its address."""
    default_engine: str = "google"
    """The engine it is asked to use."""


class WebSettings(Struct, frozen=True):
    """The web tools."""

    enabled: bool = True
    """Offer `web_search`, `fetch_content` and `get_search_content`."""
    provider: str = "ddgs"
    """Who is searched with; `auto` tries them in order."""
    provider_priority: tuple[str, ...] = PROVIDERS
    """The order of `auto`."""
    timeout_ms: int = 10_000
    """How long one request may take."""
    max_response_bytes: int = 1_048_576
    """How much of a page is loaded."""
    max_content_chars: int = 30_000
    """How much of its text the model sees at once."""
    max_results: int = 5
    """Search results at once."""
    enable_jina_fallback: bool = False
    """Let a foreign service render pages that show nothing without a browser."""
    jina_timeout_ms: int = 8_000
    """How long that may take."""
    jina_triggers: tuple[str, ...] = ("short-html", "js-heavy-html")
    """When it is asked."""
    max_stored_results: int = 100
    """Search answers that `get_search_content` can go back to."""
    max_stored_content_chars: int = 200_000
    """How much text each of them keeps."""
    allow_private_network: bool = False
    """Let tools reach this machine and private networks."""
    allowed_hosts: tuple[str, ...] = ()
    """The only hosts that pages and documents are loaded from, with all below them; an empty list is all hosts."""
    debug: Debug = False
    """Note each request of the web tools in `retinue/web.log` of the agent directory: host, end, size and time;
    `verbose` adds path and type, never a question or an answer. true is `minimal`."""
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
    """Offer it."""
    command: str = "markitdown"
    """The program: a name on the search path, or a path. Another one than `markitdown` reads all documents."""
    timeout_ms: int = 30_000
    """How long it may take."""
    max_response_bytes: int = 10_485_760
    """How large a document may be."""
    max_content_chars: int = 50_000
    """How much of its text the model sees."""
    allow_private_network: bool = False
    """Let it load documents from this machine and private networks."""


class LspToolSettings(Struct, frozen=True):
    """The `lsp` tool."""

    enabled: bool = True
    """Offer it."""
    allow_mutating_actions: bool = False
    """Let the main agent ask what a rename or a code action would change, and restart servers."""


class LspHook(Struct, frozen=True):
    """What language servers say by themselves."""

    enabled: bool = True
    """Tell the main agent what a language server complains about."""
    mode: HookMode = "agent_end"
    """When: at the end of its work, or after each change."""


class Lsp(Struct, frozen=True):
    """Language servers."""

    enabled: bool = True
    """Use language servers at all."""
    python: str = "auto"
    """Which server is asked about Python: `ty`, `pyright`, `basedpyright`, or the first of them that is installed."""
    tool: LspToolSettings = LspToolSettings()
    hook: LspHook = LspHook()


class CommandsSettings(Struct, frozen=True):
    """The `/toolkit` command."""

    enabled: bool = True
    """Offer it."""


def resolve_hook(lsp: Lsp) -> Lsp:
    """Either way of switching the hook off switches both."""
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
"""Every setting of these sections as files name it."""
DEVKIT_IGNORED = frozenset(
    (
        "subagents.projectAgentPolicy",
        "subagents.nonInteractivePolicy",
        "web.connectionPool",
        "convertContent.provider",
        "guards",
    )
)
"""What other versions know and we do not: right in a file, and without effect."""
