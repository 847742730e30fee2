"""A user's folder, a project and a place for installed packages, with extensions written by tests."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent
from typing import Self

from msgspec import structs

from retinue.features.extensions.candidates import ExtensionFolders, WantedExtensions
from retinue.features.extensions.contained import Handler
from retinue.features.extensions.handlers import Handlers, RunningHandlers
from retinue.features.extensions.loader import ExtensionLibrary, LoadedExtensions

TOOL = """
def register(api):
    @api.tool(name={name!r}, description="Says its place.")
    def {name}():
        return __file__ + " " + api.name + " " + str(api.cwd)
"""


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.user = root / "agent" / "extensions"
        self.own = self.project / ".pi" / "extensions"
        self.site = root / "site"
        self.home = root / "home"
        for folder in (self.user, self.own, self.site, self.home):
            folder.mkdir(parents=True)

    def put(self, path: Path, text: str = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text or TOOL.format(name=path.stem)))
        return path

    def install(self, name: str, value: str, text: str | None = None) -> Path:
        metadata = self.site / f"{name}-1.0.dist-info"
        self.put(metadata / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = f"[retinue.extensions]\n{name} = {value}\n" if text is None else text
        return self.put(metadata / "entry_points.txt", points)

    def places(self, *, trusted: bool = True, search: bool = True) -> ExtensionFolders:
        installed = (str(self.site),) if search else ()
        return ExtensionFolders(self.project, self.user.parent, self.project, trusted, self.home, installed)

    async def load(
        self, wanted: WantedExtensions | None = None, *, trusted: bool = True, limit_s: float = 10.0
    ) -> LoadedExtensions:
        library = ExtensionLibrary(self.places(trusted=trusted), limit_s=limit_s)
        loaded = await library.load(wanted)
        return structs.replace(loaded, diagnostics=(*library.found.diagnostics, *loaded.diagnostics))

    def library(self, **places: bool) -> ExtensionLibrary:
        return ExtensionLibrary(self.places(**places))


class OpenHandlers(Handlers):
    """Handlers with workers of their own, as an async context manager."""

    def __init__(self, handlers: Iterable[Handler], *, limit_s: float = 60.0, drain_s: float = 2.0) -> None:
        self._workers = RunningHandlers(limit_s=limit_s, drain_s=drain_s)
        self._group = asyncio.TaskGroup()
        super().__init__(handlers, self._workers)

    @property
    def failures(self) -> Counter[str]:
        return self._workers.failures

    @property
    def dropped(self) -> Counter[str]:
        return self._workers.dropped

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._workers.open(self._group)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._workers.close()
        await self._group.__aexit__(None, None, None)


def names(loaded: LoadedExtensions) -> list[tuple[str, str]]:
    return [(extension.name, extension.source) for extension in loaded.extensions]


def problems(loaded: LoadedExtensions) -> list[str]:
    return [problem.message for problem in loaded.diagnostics]
