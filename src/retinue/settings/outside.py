"""From the user's settings to what the web and convert tools are told."""

from collections.abc import Mapping

from retinue.settings.devkit import ConvertContent, Web
from retinue.settings.subagents import CrewSettings
from retinue.tools.convert.options import ConvertOptions
from retinue.tools.outbound.limits import Reach
from retinue.tools.policy import CONVERT_OFFERS, LSP_OFFERS, WEB_OFFERS
from retinue.tools.selectors import Offer
from retinue.tools.web.options import ProviderOptions, ReaderOptions, WebOptions


def list_outside(settings: CrewSettings) -> Mapping[str, Offer]:
    """The tools that are switched on."""
    web = WEB_OFFERS if settings.enabled and settings.web.enabled else {}
    convert = CONVERT_OFFERS if settings.enabled and settings.convert_content.enabled else {}
    lsp = LSP_OFFERS if settings.enabled and settings.lsp.enabled and settings.lsp.tool.enabled else {}
    return {**web, **convert, **lsp}


def to_web_options(web: Web) -> WebOptions:
    """What the web tools are told."""
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
        reach=Reach(web.allow_private_network, web.allowed_hosts),
    )


def to_convert_options(convert: ConvertContent, hosts: tuple[str, ...] = ()) -> ConvertOptions:
    """What the convert tool is told; `hosts` are those that the web tools may reach."""
    return ConvertOptions(
        command=convert.command,
        timeout_s=convert.timeout_ms / 1000,
        max_bytes=convert.max_response_bytes,
        max_chars=convert.max_content_chars,
        reach=Reach(convert.allow_private_network, hosts),
    )
