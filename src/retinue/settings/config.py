"""What was read for one folder: settings, trust, prompt files, and its agents when somebody asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.features.sandbox import Boundaries
from retinue.settings.context import PromptFiles, load_prompt_files
from retinue.settings.layers import LoadedSettings
from retinue.settings.paths import Paths, expand_path
from retinue.settings.request import Request
from retinue.settings.schema import Settings
from retinue.settings.subagents import CrewSettings, LoadedCrew, load_crew
from retinue.tools.registry import ToolOptions

if TYPE_CHECKING:
    from retinue.sandbox.probe import Machine
    from retinue.settings.roster import Roster


_GUARDS = ("sandbox.", "denyTools", "redactSecrets", "web.", "convertContent.", "lsp.")


class CurrentCrew:
    """What subagents.json says now: the user may change it while a session is open."""

    def __init__(self, loaded: LoadedCrew) -> None:
        self._loaded = loaded

    @property
    def settings(self) -> CrewSettings:
        """Those in force."""
        return self._loaded.settings

    def replace(self, loaded: LoadedCrew) -> None:
        """Go by what has just been read."""
        self._loaded = loaded

    def has_given(self, *keys: str) -> bool:
        """Whether the program itself has set one whose name begins so."""
        given = (layer.values for layer in self._loaded.layers if layer.scope == "flag")
        return any(key.startswith(keys) for values in given for key in values)


@dataclass(frozen=True, eq=False)
class Config:
    """Everything the user has configured that matters here."""

    paths: Paths
    loaded: LoadedSettings
    crew: CurrentCrew
    files: PromptFiles
    boundaries: Boundaries
    """What commands are confined by."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What is wrong with subagents.json and the prompt files."""

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
        return self.crew.has_given(*_GUARDS)

    @cached_property
    def roster(self) -> "Roster":
        """The agents of this folder, read when first asked for."""
        from retinue.settings.roster import Roster

        return Roster(self.paths, self.loaded, self.crew.settings, self.boundaries)


def choose_shell(options: ToolOptions, paths: Paths, settings: Settings) -> ToolOptions:
    """What commands of the model and of the user run in. Raises UsageError."""
    path, prefix = settings.shell_path, settings.shell_command_prefix
    shell = str(expand_path(path, paths.home, paths.cwd, "shellPath")) if path else ""
    return replace(options, shell=shell, command_prefix=prefix or "")


def load_config(
    paths: Paths,
    loaded: LoadedSettings,
    request: Request,
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, Any],
    find_machine: "Callable[[], Machine]",
    tell: Callable[[str], None],
) -> Config:
    """Read what else is configured for a folder whose settings are known; `flags` win over subagents.json.

    `find_machine` knows what this machine can enforce, `tell` hears that there is no boundary. Raises ConfigError for a
    budget that cannot be read: nobody wants to work without the one that was meant.
    """
    crew = load_crew(paths, environment, trusted=loaded.trust.trusted, flags=flags)
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
    boundaries = Boundaries(
        crew.settings.sandbox,
        home=paths.home,
        agent_dir=paths.agent_dir,
        find_machine=find_machine,
        withheld=paths.withheld,
        exposed=paths.exposed,
        tell=tell,
    )
    return Config(paths, loaded, CurrentCrew(crew), files, boundaries, (*crew.diagnostics, *files.diagnostics))
