"""The tools that reach outside, for the main agent and its crew: the web's and the converter.

One object for a session: what is found in it can be read again by all its agents. Loads nearly nothing before one of
the tools is used.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.tool import Tool
from retinue.settings.subagents import CrewSettings
from retinue.tools.registry import build_convert, build_web
from retinue.tools.trees import TreeProbe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.engine.runner import LiveRun
    from retinue.tools.outbound.trace import Exchange

MAX_TRACE_BYTES = 1_000_000
RECORD = "web-tools-results"
"""Type of the session's entries with what was found."""


class WebTools:
    """Makes them once."""

    def __init__(
        self,
        settings: CrewSettings,
        environment: Mapping[str, str],
        trees: TreeProbe,
        find_main: "Callable[[], LiveRun]",
    ) -> None:
        """`find_main` knows whose session keeps what is found."""
        self._settings = settings
        self._environment = environment
        self._trees = trees
        self._find_main = find_main
        self._tools: dict[str, Tool] | None = None

    def build(self) -> dict[str, Tool]:
        """Those that are switched on, by name."""
        if self._tools is None:
            self._tools = self._build()
        return self._tools

    def _build(self) -> dict[str, Tool]:
        from retinue.settings.web import list_outside, to_convert_options, to_web_options
        from retinue.tools.convert.options import ConvertPorts
        from retinue.tools.web.options import WebPorts

        own, offered = self._settings, list_outside(self._settings)
        tools: dict[str, Tool] = {}
        if "web_search" in offered:
            ports = WebPorts(environment=self._environment, trace=self._find_trace(), keep=self._keep, load=self._load)
            tools |= build_web(to_web_options(own.web), ports)
        if "convert_content" in offered:
            options = to_convert_options(own.convert_content, own.web.allowed_hosts)
            convert = ConvertPorts(environment=self._environment, trace=self._find_trace(), trees=self._trees)
            tools |= build_convert(options, convert)
        return tools

    def _find_trace(self) -> "Callable[[Exchange], None] | None":
        """Who is told of requests; nobody unless the user wants to look for a mistake."""
        level = self._settings.web.debug
        if not level:
            return None
        from retinue.core.jsonline import encode_json
        from retinue.sessions.linelog import LineLog
        from retinue.settings.web import find_web_log

        log = LineLog(find_web_log(self._environment))

        def note(exchange: "Exchange") -> None:
            log.append(encode_json(exchange.to_data(verbose=level == "verbose")), most=MAX_TRACE_BYTES)

        return note

    def _keep(self, record: dict[str, Any]) -> None:
        main = self._find_main()
        main.journal.write(lambda: main.session.append_custom(RECORD, record))

    def _load(self) -> "Iterator[Any]":
        return self._find_main().session.customs(RECORD)
