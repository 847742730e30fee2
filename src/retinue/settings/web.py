"""Builds the web and convert tools from the user's settings."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from retinue.core.errors import quote
from retinue.core.tool import Tool
from retinue.settings.devkit import ConvertContent, WebSettings
from retinue.settings.paths import find_paths
from retinue.settings.subagents import SubagentsConfig
from retinue.tools.convert.options import ConvertOptions, ConvertPorts
from retinue.tools.outbound.request import RequestReach
from retinue.tools.policy import list_offers
from retinue.tools.process_tree import TreeProbe
from retinue.tools.registry import build_family
from retinue.tools.selectors import Offer
from retinue.tools.web.options import ProviderOptions, ReaderOptions, WebOptions, WebPorts

if TYPE_CHECKING:
    from retinue.engine.runner import LiveRun
    from retinue.tools.outbound.request import HttpExchange

Row: TypeAlias = tuple[Literal["pass", "warn", "info"], str, str, str]
"""State, category, message and details of one line of `retinue doctor`."""
MAX_TRACE_BYTES = 1_000_000
RECORD = "web-tools-results"
"""Type of session entries that store search results."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def list_outside(settings: SubagentsConfig) -> Mapping[str, Offer]:
    is_on = {
        "web": settings.web.enabled,
        "convert": settings.convert_content.enabled,
        "lsp": settings.lsp.enabled and settings.lsp.tool.enabled,
    }
    families = [family for family, on in is_on.items() if settings.enabled and on]
    return {name: offer for family in families for name, offer in list_offers(family=family).items()}


def to_web_options(web: WebSettings) -> WebOptions:
    keyed = {"openserp": web.openserp, "brave": web.brave, "tavily": web.tavily, "serper": web.serper}
    providers = {name: ProviderOptions(own.enabled, own.base_url, own.api_key_env) for name, own in keyed.items()}
    own = web.searxng
    providers["searxng"] = ProviderOptions(own.enabled, own.base_url, engine=own.default_engine)
    reader = ReaderOptions(timeout_s=web.jina_timeout_ms / 1000, triggers=web.jina_triggers)
    return WebOptions(
        provider=web.provider,
        priority=web.provider_priority,
        providers=providers,
        timeout_s=web.timeout_ms / 1000,
        max_bytes=web.max_response_bytes,
        max_chars=web.max_content_chars,
        max_results=web.max_results,
        reader=reader if web.enable_jina_fallback else None,
        max_stored=web.max_stored_results,
        max_stored_chars=web.max_stored_content_chars,
        cache_entries=web.cache.max_entries if web.cache.enabled else 0,
        cache_s=web.cache.ttl_ms / 1000,
        max_concurrent=web.concurrency.max_concurrent,
        max_waiting=web.concurrency.max_queue_size,
        reach=RequestReach(web.allow_private_network, web.allowed_hosts),
    )


def export_search_keys(
    settings: SubagentsConfig, environment: Mapping[str, str], tools: Collection[str]
) -> dict[str, str]:
    """Return the variables that another process needs to search; empty for one that does not search."""
    if "web_search" not in tools or "web_search" not in list_outside(settings):
        return {}
    options = to_web_options(settings.web)
    wanted = options.priority if options.provider == "auto" else (options.provider,)
    chosen = [options.providers[name] for name in wanted if name in options.providers]
    names = [own.key_name for own in chosen if own.enabled and own.key_name]
    return {name: environment[name] for name in names if environment.get(name)}


def to_convert_options(convert: ConvertContent, hosts: tuple[str, ...] = ()) -> ConvertOptions:
    """Convert the settings to options of the convert tool; `hosts` are those that the web tools may access."""
    return ConvertOptions(
        command=convert.command,
        timeout_s=convert.timeout_ms / 1000,
        max_bytes=convert.max_response_bytes,
        max_chars=convert.max_content_chars,
        reach=RequestReach(convert.allow_private_network, hosts, "convertContent.allowPrivateNetwork"),
    )


def find_web_log(environment: Mapping[str, str]) -> Path:
    """Return the log of requests for `web.debug`."""
    return find_paths(".", environment).own_dir / "web.log"


def describe_outside(settings: SubagentsConfig, environment: Mapping[str, str], project: str) -> Iterator[Row]:
    """Describe what can be searched, fetched and converted, from the configuration alone."""
    web = settings.web
    offered = list_outside(settings)
    if "web_search" not in offered:
        yield "warn", "web-tools", "Web tools disabled", "web.enabled"
    else:
        yield from _describe_providers(web, environment)
        yield "pass", "web-tools", "Web tools enabled", f"Provider: {web.provider}, Debug: {str(web.debug).lower()}"
        if web.debug:
            yield "info", "web-tools", "Requests of the web tools are logged", str(find_web_log(environment))
        if any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES):
            text = "requests go out directly, because names are resolved and addresses checked here"
            yield "info", "web-tools", "Proxies of the environment are not used by the web tools", text
        if web.allow_private_network:
            yield (
                "warn",
                "web-tools",
                "Web tools may access this machine and private networks",
                "web.allowPrivateNetwork",
            )
    if "convert_content" in offered:
        yield _describe_converter(settings.convert_content.command, environment, project)
    else:
        yield "info", "convert", "Document conversion disabled", "convertContent.enabled"


def _describe_providers(web: WebSettings, environment: Mapping[str, str]) -> Iterator[Row]:
    from retinue.tools.web.providers import PROVIDERS, SearchFailed, find_access

    options = to_web_options(web).providers
    for name, provider in reversed(list(PROVIDERS.items())):
        own = options.get(name, ProviderOptions())
        if name != "ddgs" and not own.enabled:
            # A chosen provider that is unusable makes every search fail.
            chosen = web.provider == name
            yield "warn" if chosen else "info", "provider", f"{provider.label} is not enabled", f"web.{name}.enabled"
            continue
        try:
            access = find_access(name, options, environment)
        except SearchFailed as error:
            is_keyless = error.code == "PROVIDER_AUTH_FAILED"
            text = f"{provider.label} requires {own.key_name}" if is_keyless else f"{provider.label} may have issues"
            yield "warn", "provider", text, str(error)
        else:
            yield "pass", "provider", f"{provider.label} configured", access.url


def _describe_converter(command: str, environment: Mapping[str, str], project: str) -> Row:
    from retinue.tools.convert.convert import find_converter
    from retinue.tools.convert.converter import INSTALL
    from retinue.tools.convert.options import COMMAND
    from retinue.tools.convert.readers.registry import FORMATS

    found = find_converter(command, environment.get("PATH", ""), outside=project)
    if found:
        return "pass", "convert", "Documents are converted", found
    if command != COMMAND:
        return "warn", "convert", f"Converter {quote(command)} not found", f"convertContent.command; {INSTALL}"
    return "info", "convert", "Documents are read without a converter", f"{', '.join(FORMATS)}; for more: {INSTALL}"


class WebTools:
    """The web tools and the converter for the main agent and its subagents.

    One object per session: all its agents can read stored results. Almost nothing is imported before a tool is used.
    """

    def __init__(
        self,
        settings: SubagentsConfig,
        environment: Mapping[str, str],
        trees: TreeProbe,
        find_main: "Callable[[], LiveRun]",
    ) -> None:
        """`find_main` returns the run whose session stores the results."""
        self._settings = settings
        self._environment = environment
        self._trees = trees
        self._find_main = find_main
        self._tools: dict[str, Tool] | None = None

    def build(self) -> dict[str, Tool]:
        if self._tools is None:
            self._tools = self._build()
        return self._tools

    def _build(self) -> dict[str, Tool]:
        from retinue.tools.web.session import WebSession

        own, offered = self._settings, list_outside(self._settings)
        tools: dict[str, Tool] = {}
        if "web_search" in offered:
            ports = WebPorts(environment=self._environment, trace=self._find_trace(), keep=self._keep, load=self._load)
            tools |= build_family("web", WebSession(to_web_options(own.web), ports))
        if "convert_content" in offered:
            options = to_convert_options(own.convert_content, own.web.allowed_hosts)
            convert = ConvertPorts(environment=self._environment, trace=self._find_trace(), trees=self._trees)
            tools |= build_family("convert", options, convert)
        return tools

    def _find_trace(self) -> "Callable[[HttpExchange], None] | None":
        """Return the function that logs requests; None unless `web.debug` is on."""
        level = self._settings.web.debug
        if not level:
            return None
        from retinue.core.jsonline import encode_json
        from retinue.sessions.linelog import LineLog

        log = LineLog(find_web_log(self._environment))

        def note(exchange: "HttpExchange") -> None:
            log.append(encode_json(exchange.to_data(verbose=level == "verbose")), most=MAX_TRACE_BYTES)

        return note

    def _keep(self, record: dict[str, Any]) -> None:
        main = self._find_main()
        main.journal.write(lambda: main.session.append_custom(RECORD, record))

    def _load(self) -> "Iterator[Any]":
        return self._find_main().session.customs(RECORD)
