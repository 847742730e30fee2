"""What was read for one Retinue: settings, trust, prompt files, and the agents of the folder when somebody asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.app.lsp import Languages
from retinue.core.errors import ConfigError
from retinue.settings.context import PromptFiles, load_prompt_files
from retinue.settings.layers import Loaded
from retinue.settings.paths import Paths, expand_path
from retinue.settings.providers import list_stored
from retinue.settings.schema import Settings
from retinue.settings.subagents import LoadedCrew, load_crew
from retinue.tools.registry import ToolOptions

if TYPE_CHECKING:
    from retinue.app.host import Stock
    from retinue.app.web import Outside
    from retinue.features.activity import Recorder
    from retinue.features.sandbox import Boundaries
    from retinue.sandbox.probe import Machine
    from retinue.settings.guards import Guards
    from retinue.settings.roster import Roster


_GUARDS = ("sandbox.", "denyTools", "redactSecrets", "web.", "convertContent.", "lsp.")


@dataclass(slots=True)
class World:
    """Everything the user has configured that matters here."""

    paths: Paths
    loaded: Loaded
    crew: LoadedCrew
    files: PromptFiles
    keeps_children: bool = True
    """Whether runs leave a session although the main agent leaves none."""
    has_session: bool = True
    """Whether the main agent keeps a session; what belongs to one, such as schedules, is not offered without."""
    surfaces: Sequence[str] = ()
    """Those whose tools the main agent and its crew may have."""
    find_machine: "Callable[[], Machine] | None" = None
    """What this machine can enforce, found out for all worlds of one Retinue at once."""
    tell: "Callable[[str], None]" = lambda text: None
    """Hears that there is no boundary."""
    recorder: "Recorder | None" = None
    """Keeps what tools did; none where nothing is kept, and inside another program's agent, which keeps it itself."""
    redact: Callable[[str], str] = str
    """Takes secrets out of what is read for a model."""
    _languages: Languages | None = None
    _outside: "Outside | None" = None
    _boundaries: "Boundaries | None" = None
    _roster: "Roster | None" = None
    _guarding: "Guards | None" = None

    @property
    def is_trusted(self) -> bool:
        """Whether the project's own configuration counts."""
        return self.loaded.trust.trusted

    @property
    def configs(self) -> tuple[str, ...]:
        """The project's configuration folders that count."""
        return self.paths.configs if self.is_trusted else ()

    @property
    def is_narrowed(self) -> bool:
        """Whether the program has set what guards its runs: a process of their own would know the files alone."""
        given = (layer.values for layer in self.crew.layers if layer.scope == "flag")
        return any(key.startswith(_GUARDS) for values in given for key in values)

    @property
    def guarding(self) -> "Guards":
        """What stands around the runs."""
        assert self._guarding is not None, "nobody guards this world"
        return self._guarding

    @guarding.setter
    def guarding(self, guarding: "Guards") -> None:
        self._guarding = guarding

    @property
    def outside(self) -> "Outside":
        """The tools for the web and for documents."""
        assert self._outside is not None, "there is nothing outside"
        return self._outside

    @outside.setter
    def outside(self, outside: "Outside") -> None:
        self._outside = outside

    @property
    def languages(self) -> Languages:
        """The language servers."""
        assert self._languages is not None, "nobody speaks here"
        return self._languages

    @languages.setter
    def languages(self, languages: Languages) -> None:
        self._languages = languages

    @property
    def boundaries(self) -> "Boundaries":
        """What commands are confined by."""
        if self._boundaries is None:
            from retinue.features.sandbox import Boundaries

            self._boundaries = Boundaries(
                self.crew.settings.sandbox,
                home=self.paths.home,
                agent_dir=self.paths.agent_dir,
                find_machine=self.find_machine,
                withheld=self.paths.withheld,
                exposed=self.paths.exposed,
                tell=self.tell,
            )
        return self._boundaries

    @property
    def roster(self) -> "Roster":
        """The agents of this folder, read when first asked for."""
        if self._roster is None:
            from retinue.settings.roster import Roster

            self._roster = Roster(self.paths, self.loaded, self.crew.settings, self.boundaries)
        return self._roster


def choose_shell(options: ToolOptions, paths: Paths, settings: Settings) -> ToolOptions:
    """What commands of the model and of the user run in. Raises UsageError."""
    path, prefix = settings.shell_path, settings.shell_command_prefix
    shell = str(expand_path(path, paths.home, paths.cwd, "shellPath")) if path else ""
    return replace(options, shell=shell, command_prefix=prefix or "")


def read_world(stock: "Stock", paths: Paths, loaded: Loaded) -> World:
    """Read what else is configured for a session in a folder whose settings are known.

    Raises ConfigError for a budget that cannot be read: nobody wants to work without the one that was meant.
    """
    request, environment, clock = stock.request, stock.environment, stock.clock
    crew = load_crew(paths, environment, trusted=loaded.trust.trusted, flags=stock.settings.crew)
    files = load_prompt_files(
        paths,
        trusted=loaded.trust.trusted,
        system=request.system_prompt,
        append=request.append_system_prompt,
        use_context=request.context_files,
        hidden=crew.settings.sandbox.hidden,
    )
    if unread := [item for item in crew.diagnostics if item.severity == "error" and item.field.startswith("budget")]:
        raise ConfigError(f"{unread[0].message}; nothing is started until the budget can be read")
    stock.tell((*crew.diagnostics, *files.diagnostics))
    has_session = request.session.kind not in ("none", "children")
    world = World(
        *(paths, loaded, crew, files),
        has_session=has_session,
        find_machine=stock.find_machine,
        tell=stock.say_once,
    )
    stock.tool_options = choose_shell(stock.tool_options, paths, loaded.settings)
    stock.redactor.learn(*list_stored(paths))
    world.redact = stock.redactor.redact
    if not stock.is_child and request.session.kind != "none":
        from retinue.features.activity import Recorder, find_log

        world.recorder = Recorder(find_log(paths.own_dir, paths.project), clock)
    world.languages = Languages(
        crew.settings,
        world.boundaries,
        environment,
        clock,
        trees=stock.tool_options.trees,
        trust=loaded.trust,
        is_child=stock.is_child,
    )
    return world
