"""The extensions of one Retinue: found at its start, loaded on demand, notified of events.

Without extensions only the folders are searched.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import ConfigError, UsageError, quote
from retinue.core.events import Compacted, Event, RunFinished, RunStarted, Warned
from retinue.core.run import Run
from retinue.engine.bus import Bus, Listener
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Additions
from retinue.engine.runner import LiveRun
from retinue.features.extensions.candidates import ExtensionFolders, WantedExtensions, find_extensions, to_wanted
from retinue.settings.config import Config
from retinue.settings.request import Request
from retinue.settings.subagents import SUBAGENT_SETTINGS, SubagentsConfig
from retinue.tools.selectors import Offer, list_extensions, to_extension_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retinue.app.mcp import McpServers
    from retinue.features.extensions.channels import Channels
    from retinue.features.extensions.contained import ExtensionCommand, Handler, Renderer
    from retinue.features.extensions.handlers import RunningHandlers
    from retinue.features.extensions.loader import ExtensionLibrary, LoadedExtensions
    from retinue.surfaces.base import Caller
    from retinue.surfaces.fleet.ports import FleetPorts


_TOLD_ABOVE = (RunStarted, RunFinished, Compacted, Warned)
"""Events of runs that the main agent's bus carries too."""


class Extensions:
    """Gives runs the extensions that they want."""

    def __init__(
        self,
        config: Config,
        paths: Sequence[str | Path],
        tell: Callable[[Diagnostic], None],
        servers: "McpServers | None" = None,
        inherited: WantedExtensions | None = None,
    ) -> None:
        """`paths` are extra files for the main agent; `tell` receives each problem once.

        `servers` are the MCP servers, which appear as an extension, or None. `inherited` is what the main agent wants
        if this process works for a run of another process.
        """
        own = config.paths
        self._always = config.crew.settings.always_exposed_extensions
        # Absolute, because a relative path could be taken for a name.
        self._paths = tuple(os.path.normpath(Path(own.cwd, path)) for path in paths)
        self._own = own
        self._tell = tell
        self.servers = servers
        self._inherited = inherited
        self._told: set[str] = set()
        self._places = ExtensionFolders(
            own.cwd, own.agent_dir, own.project, config.is_trusted, own.home, configs=own.configs
        )
        self._places = replace(self._places, chosen=frozenset(self._paths))
        self._found = find_extensions(self._places)
        self._group = asyncio.TaskGroup()
        self._audience: RunningHandlers | None = None
        self._library: ExtensionLibrary | None = None
        self._main: LoadedExtensions | None = None
        self._listeners: dict[tuple[Handler, ...], tuple[tuple[Listener, bool], ...]] = {}
        self._channels: Channels | None = None
        self._on_channels: Callable[[Channels], None] | None = None
        self._report(self._found.diagnostics)

    async def load_main(self, definition: Definition | None) -> Additions:
        """Return what the main agent gets; `definition` is what it runs as."""
        # Entered here and left in `close`: a run that is the first to want an extension ends earlier.
        await self._group.__aenter__()
        wanted = self._choose_main(definition)
        for path in self._paths if set(self._paths) <= set(wanted.paths) else ():
            await self._check(path)
        self._main = await self._load(wanted)
        self._report(_find_clashes(self.collect("commands")))
        own = self._to_additions(self._main)
        return _defer(own if self.servers is None else _join(own, await self.servers.load_main(definition)))

    def _choose_main(self, definition: Definition | None) -> WantedExtensions:
        if definition is not None:
            return to_wanted(definition, always=self._always)
        # A process that works for another agent's run has the extensions of that agent's file, and no others.
        if self._inherited is not None:
            return replace(self._inherited, always=self._always)
        return WantedExtensions(("*", *self._paths))

    async def load_child(self, definition: Definition, request: RunRequest) -> Additions:
        loaded = await self._load(self._choose_child(definition, isolated=request.isolated))
        own = self._to_additions(loaded, self._find_listeners(loaded))
        return _defer(own if self.servers is None else _join(own, await self.servers.load_child(definition, request)))

    async def load_guards(self, definition: Definition) -> Additions:
        """Return hooks and features that judge a remote run of a definition; it needs no tools or servers here."""
        return self._to_additions(await self._load(self._choose_child(definition)))

    def _choose_child(self, definition: Definition, *, isolated: bool = False) -> WantedExtensions:
        """Return what an agent's file wants; files given by path count like extensions that were found."""
        wanted = to_wanted(definition, isolated=isolated, always=self._always)
        listed = list_extensions(wanted.selection)
        own = tuple(path for path in self._paths if listed is None or to_extension_name(path) in listed)
        if wanted.is_none or not own:
            return wanted
        named = wanted.selection if isinstance(wanted.selection, tuple) else ("*",)
        return replace(wanted, selection=(*named, *own))

    @property
    def has_any(self) -> bool:
        return bool(self._found.candidates or self._paths)

    def listen(self, main: LiveRun) -> None:
        """Pass the main agent's events to its extensions from now on."""
        if self._main is None or not (handlers := self._main.collect("handlers")):
            return
        from retinue.features.extensions.handlers import Handlers

        listener = Handlers(handlers, self._audience)
        main.bus.listen(listener, pieces=listener.wants_pieces)

    async def close(self) -> None:
        """Let handlers finish, and close all connections."""
        if self.servers is not None:
            await self.servers.close()
        audience, self._audience = self._audience, None
        if audience is not None:
            await audience.close()
            await self._group.__aexit__(None, None, None)

    def collect(self, verb: str) -> tuple[Any, ...]:
        """Return what the main agent's extensions have registered with a verb."""
        return () if self._main is None else self._main.collect(verb)

    @property
    def commands(self) -> "Mapping[str, ExtensionCommand]":
        """By name; if several have the same name, the extension with the highest priority wins."""
        return {command.name: command for command in reversed(self.collect("commands"))}

    @property
    def renderers(self) -> "Mapping[str, Renderer]":
        """By kind of data; if several have the same kind, the extension with the highest priority wins."""
        return {renderer.kind: renderer for renderer in reversed(self.collect("renderers"))}

    def add_surfaces(self, additions: Additions, open_caller: "Callable[[], Caller]") -> Additions:
        """Add the tools of surfaces that the main agent's extensions offer."""
        surfaces = self.collect("surfaces")
        if not surfaces:
            return additions
        from retinue.core.tool_table import KNOWN_TOOLS
        from retinue.features.extensions.registrar import open_surfaces

        taken = (*KNOWN_TOOLS, *additions.tools)
        tools, problems = open_surfaces(surfaces, open_caller(), self._places.cwd, reserved=taken)
        self._report(problems)
        offers = {name: Offer(tool.effect, tool.extension) for name, tool in tools.items()}
        return replace(additions, tools={**additions.tools, **tools}, offers={**additions.offers, **offers})

    def connect(self, use: "Callable[[Channels], None]") -> None:
        """Call `use` with the channels, now or when the first extension is loaded."""
        self._on_channels = use
        if self._channels is not None:
            use(self._channels)

    async def _load(self, wanted: WantedExtensions) -> "LoadedExtensions | None":
        if wanted.is_none or not (self._found.candidates or wanted.paths):
            return None
        loaded = await self._need_library().load(wanted)
        self._report(loaded.diagnostics)
        return loaded

    async def _check(self, path: str) -> None:
        """Load an extension that was given by path. Raises ConfigError if it fails: nothing else would report it."""
        loaded = await self._need_library().load(WantedExtensions((path,)))
        if faults := [item.message for item in loaded.diagnostics if item.severity == "error"]:
            raise ConfigError("\n".join(faults))

    def _need_library(self) -> "ExtensionLibrary":
        if self._library is not None:
            return self._library
        from retinue.features.extensions.channels import Channels
        from retinue.features.extensions.handlers import RunningHandlers
        from retinue.features.extensions.loader import ExtensionLibrary
        from retinue.settings.entry_approval import judge_extension

        self._audience = RunningHandlers()
        self._audience.open(self._group)
        self._channels = Channels(self._audience)
        judge = partial(judge_extension, self._own)
        self._library = ExtensionLibrary(self._places, self._found, channels=self._channels, judge=judge)
        if self._on_channels is not None:
            self._on_channels(self._channels)
        return self._library

    def _find_listeners(self, loaded: "LoadedExtensions | None") -> tuple[tuple[Listener, bool], ...]:
        """Return the event listeners for a run with these extensions; True means that they want partial replies."""
        handlers: tuple[Handler, ...] = () if loaded is None else loaded.collect("handlers")
        if not handlers:
            return ()
        if handlers not in self._listeners:
            from retinue.features.extensions.handlers import Handlers

            known = set(self.collect("handlers"))
            shared = Handlers(filter(known.__contains__, handlers), self._audience, leaving_out=_TOLD_ABOVE)
            own = Handlers((each for each in handlers if each not in known), self._audience)
            self._listeners[handlers] = tuple((each, each.wants_pieces) for each in (shared, own) if each)
        return self._listeners[handlers]

    def _to_additions(
        self, loaded: "LoadedExtensions | None", listeners: Sequence[tuple[Listener, bool]] = ()
    ) -> Additions:
        found = frozenset(candidate.name.lower() for candidate in self._found.candidates)
        if loaded is None:
            return Additions(found=found)
        # A path in an agent's list counts as found if it could be loaded.
        there = frozenset(extension.name.lower() for extension in loaded.extensions)
        failed = frozenset(name.lower() for name in loaded.failed)
        return Additions(
            loaded.tools,
            self._list_offers(loaded),
            loaded.collect("hooks"),
            loaded.make_features(),
            found=found | there | failed,
            failed=failed,
            listeners=listeners,
            points=loaded.list_points(),
        )

    def _list_offers(self, loaded: "LoadedExtensions") -> dict[str, Offer]:
        """Return the tools for the policy; tools of files given by path are inherited by children like all others."""
        named = {extension.name for extension in loaded.extensions if extension.place in self._paths}
        return {
            name: replace(offer, is_approved=False) if offer.extension in named else offer
            for name, offer in loaded.offers.items()
        }

    def _report(self, diagnostics: Sequence[Diagnostic]) -> None:
        for problem in diagnostics:
            if problem.message not in self._told:
                self._told.add(problem.message)
                self._tell(problem)


def _find_clashes(commands: "Sequence[ExtensionCommand]") -> list[Diagnostic]:
    owners: dict[str, str] = {}
    clashes = []
    for command in commands:
        owner = owners.setdefault(command.name, command.extension)
        if owner != command.extension:
            text = (
                f"extension {quote(command.extension)}: its command /{command.name} is hidden by that of {quote(owner)}"
            )
            clashes.append(Diagnostic(text, command.path, severity="warning", code="extension-command"))
    return clashes


def _defer(additions: Additions) -> Additions:
    """Add the feature that hides deferred tools until they are searched for. Last, when all tools are known."""
    if not additions.features and not additions.tools:
        return additions
    from retinue.features.deferred import DeferredTools, is_deferred

    # A feature may add tools when the run starts, such as servers that connect late.
    if not additions.features and not any(map(is_deferred, additions.tools.values())):
        return additions
    return replace(additions, features=(*additions.features, DeferredTools()))


def _join(own: Additions, served: Additions) -> Additions:
    """Merge the additions of extensions and servers; on a name conflict the extension wins."""
    return replace(
        own,
        tools={**served.tools, **own.tools},
        offers={**served.offers, **own.offers},
        features=(*own.features, *served.features),
        release=served.release,
        found=(own.found or frozenset()) | {"mcp"},
    )


TOOLKIT = "toolkit"


class Commands:
    """Commands that the user calls by name, without the model."""

    def __init__(self, extended: "Mapping[str, ExtensionCommand]", settings: SubagentsConfig, request: Request) -> None:
        """`extended` are commands of extensions, which win over our own."""
        self._extended = extended
        self._settings = settings
        self._request = request

    def has(self, name: str) -> bool:
        if name in self._extended:
            return True
        return name == TOOLKIT and self._settings.enabled and self._settings.commands.enabled

    async def run(self, name: str, args: str = "") -> str:
        """Run a command with the text after its name and return what to show. Raises RetinueError."""
        if name in self._extended:
            return await self._extended[name].run(args)
        if not self.has(name):
            raise UsageError(f"there is no command /{quote(name)[1:-1]}{suggest(name, self._extended)}")
        from retinue.app import run_checkup
        from retinue.views.toolkit import Toolkit

        return (await asyncio.to_thread(Toolkit(self._request, run_checkup).answer, args)).text


OWNER = "subagents"
"""The owner name of our own handlers."""


class SubagentChannels:
    """Lets extensions receive events about subagents and request runs."""

    def __init__(
        self,
        channels: "Channels",
        bus: Bus,
        settings: SubagentsConfig,
        *,
        open_ports: "Callable[[], Awaitable[FleetPorts]]",
        find: Callable[[str], Run | None],
    ) -> None:
        """`open_ports` returns those of the main agent, and opens its subagents if needed."""
        from retinue.features.extensions.contained import make_handler
        from retinue.surfaces.fleet.records import LifecycleRecords
        from retinue.surfaces.fleet.rpc import METHODS, PREFIX, FleetRpc

        self._channels = channels
        self._life = LifecycleRecords(find)
        rpc = FleetRpc(open_ports, channels.emit)
        for method in METHODS:
            answer = make_handler(OWNER, __file__, frozenset(), partial(rpc.answer, method))
            channels.listen(f"{PREFIX}{method}", answer)
        bus.listen(self._hear, pieces=False)
        channels.emit("subagents:settings_loaded", {"settings": _list_settings(settings)})
        channels.emit("subagents:ready", {})

    def tell_change(self, settings: SubagentsConfig, *, persisted: bool) -> None:
        """Announce a changed setting; `persisted` is False if it applies to this session only."""
        self._channels.emit(
            "subagents:settings_changed", {"settings": _list_settings(settings), "persisted": persisted}
        )

    def _hear(self, event: Event) -> None:
        record = self._life(event)
        if record is None or not self._channels.has_listeners(record["type"]):
            return
        # The channel has the record's type as its name, so the payload can use `type` for the agent's type.
        facts = {("type" if name in ("agentType", "change") else name): record[name] for name in list(record)[1:]}
        self._channels.emit(record["type"], facts)


def _list_settings(settings: SubagentsConfig) -> dict[str, Any]:
    """Return the current top-level settings, by their names in the file."""
    plain = (setting for setting in SUBAGENT_SETTINGS if "." not in setting.key)
    return {setting.key: getattr(settings, setting.field) for setting in plain}
