"""A user's folder, a project and a place for installed packages, with extensions written by tests."""

from pathlib import Path
from textwrap import dedent

from retinue.features.extensions.candidates import ExtensionFolders, WantedExtensions
from retinue.features.extensions.loader import ExtensionLibrary, LoadedExtensions, load_extensions

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
        return await load_extensions(self.places(trusted=trusted), wanted, limit_s=limit_s)

    def library(self, **places: bool) -> ExtensionLibrary:
        return ExtensionLibrary(self.places(**places))


def names(loaded: LoadedExtensions) -> list[tuple[str, str]]:
    return [(extension.name, extension.source) for extension in loaded.extensions]


def problems(loaded: LoadedExtensions) -> list[str]:
    return [problem.message for problem in loaded.diagnostics]
