"""The extensions of one Retinue: looked for at its start, loaded for whoever wants them, told what happens.

Where there are none, nothing but their names is looked for.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.world import World
from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic
from retinue.engine.extras import Extras
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.features.extensions.candidates import Places, find_extensions
from retinue.features.extensions.scope import Wanted, to_wanted

if TYPE_CHECKING:
    from retinue.features.extensions.handlers import Handlers
    from retinue.features.extensions.loader import Library, Loaded


class Extending:
    """Gives runs the extensions that they want."""

    def __init__(self, world: World, paths: Sequence[str | Path], tell: Callable[[Diagnostic], None]) -> None:
        """`paths` are files for the main agent beside those that are found; `tell` gets each problem once."""
        own = world.paths
        self._always = world.crew.settings.always_exposed_extensions
        # A path must look like one, or it would be taken for a name.
        self._paths = tuple(str(Path(own.cwd, path)) for path in paths)
        self._tell = tell
        self._told: set[str] = set()
        self._places = Places(own.cwd, own.agent_dir, own.project, trusted=world.is_trusted, home=own.home)
        self._found = find_extensions(self._places)
        self._library: Library | None = None
        self._handlers: Handlers | None = None
        self._main: Loaded | None = None
        self._report(self._found.diagnostics)

    async def load_main(self, definition: Definition | None) -> Extras:
        """What the main agent gets; `definition` is what it runs as."""
        wanted = Wanted(("*", *self._paths)) if definition is None else to_wanted(definition, always=self._always)
        self._main = await self._load(wanted)
        return _to_extras(self._main)

    async def load_child(self, definition: Definition, request: RunRequest) -> Extras:
        """What a run of a definition gets."""
        return _to_extras(await self._load(to_wanted(definition, isolated=request.isolated, always=self._always)))

    async def listen(self, main: LiveRun) -> None:
        """Tell the main agent's extensions what happens from now on."""
        if self._main is None or not (handlers := self._main.collect("handlers")):
            return
        from retinue.features.extensions.handlers import Handlers

        self._handlers = await Handlers(handlers).__aenter__()
        main.bus.listen(self._handlers, pieces=self._handlers.wants_pieces)

    async def close(self) -> None:
        """Let handlers end what they have begun."""
        handlers, self._handlers = self._handlers, None
        if handlers is not None:
            await handlers.__aexit__(None)

    async def _load(self, wanted: Wanted) -> "Loaded | None":
        if wanted.is_none or not (self._found.candidates or wanted.paths):
            return None
        if self._library is None:
            from retinue.features.extensions.loader import Library

            self._library = Library(self._places, self._found)
        loaded = await self._library.load(wanted)
        self._report(loaded.diagnostics)
        return loaded

    def _report(self, diagnostics: Sequence[Diagnostic]) -> None:
        for problem in diagnostics:
            if problem.message not in self._told:
                self._told.add(problem.message)
                self._tell(problem)


def _to_extras(loaded: "Loaded | None") -> Extras:
    if loaded is None:
        return Extras()
    return Extras(loaded.tools, loaded.offers, loaded.collect("hooks"), loaded.make_features())
