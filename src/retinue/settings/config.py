"""Config: what was read for one folder (settings, trust, prompt files), and its agents on demand."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.features.sandbox import Boundaries
from retinue.settings.context import PromptFiles, load_prompt_files
from retinue.settings.layers import LoadedSettings
from retinue.settings.paths import Paths, expand_path
from retinue.settings.request import Request
from retinue.settings.schema import Settings
from retinue.settings.subagents import LoadedSubagents, SubagentsConfig, load_subagents
from retinue.tools.registry import ToolOptions

if TYPE_CHECKING:
    from retinue.features.worktree.preparation import WorktreeOptions
    from retinue.sandbox.probe import Machine
    from retinue.settings.roster import Roster


_GUARDS = ("sandbox.", "denyTools", "redactSecrets", "web.", "convertContent.", "lsp.")


class CurrentSubagents:
    """The current content of subagents.json, which the user may change while a session is open."""

    def __init__(self, loaded: LoadedSubagents) -> None:
        self._loaded = loaded

    @property
    def settings(self) -> SubagentsConfig:
        return self._loaded.settings

    def replace(self, loaded: LoadedSubagents) -> None:
        self._loaded = loaded

    def find_scope(self, key: str) -> str:
        """Return the layer that sets a key: `user`, `project` and so on; empty if none does."""
        return next((layer.scope for layer in reversed(self._loaded.layers) if key in layer.values), "")

    def list_values(self, key: str) -> list[tuple[str, Any]]:
        """Return the layers that set a key, weakest first, with their values."""
        return [(layer.scope, layer.values[key]) for layer in self._loaded.layers if key in layer.values]

    def has_given(self, *keys: str) -> bool:
        """Return whether the program itself (not a file) set a key with one of these prefixes."""
        given = (layer.values for layer in self._loaded.layers if layer.scope == "flag")
        return any(key.startswith(keys) for values in given for key in values)


class Config(Struct, frozen=True, eq=False, dict=True):
    paths: Paths
    loaded: LoadedSettings
    crew: CurrentSubagents
    files: PromptFiles
    boundaries: Boundaries
    """The sandbox of commands."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems in subagents.json and the prompt files."""

    @property
    def is_trusted(self) -> bool:
        """Whether the project's own configuration applies."""
        return self.loaded.trust.trusted

    @property
    def configs(self) -> tuple[str, ...]:
        return self.paths.configs if self.is_trusted else ()

    @property
    def is_narrowed(self) -> bool:
        """Whether the program set guards for its runs itself; a separate process would only know those in files."""
        return self.crew.has_given(*_GUARDS)

    @cached_property
    def roster(self) -> "Roster":
        """The agents of this folder, read on first use."""
        from retinue.settings.roster import Roster

        return Roster(self.paths, self.loaded, self.crew.settings, self.boundaries)


def find_refusal(config: Config, key: str, entry: Any, consequence: str) -> str:
    """Return why a command of subagents.json may not be run: a project's needs consent; empty if it may."""
    if not entry or config.crew.find_scope(key) != "project":
        return ""
    from retinue.settings.consent import Consents, tell_waiting

    waiting = tell_waiting(Consents(config.paths, "commands", []).judge(key, entry))
    approval = f"To approve it: retinue trust --command {key} --yes"
    return f"{key} of this project {waiting}; {consequence}. {approval}" if waiting else ""


def read_worktree_options(config: Config) -> "WorktreeOptions":
    """Return the settings of worktrees; a project's command only if the user consented to it as it is now."""
    from retinue.features.worktree.preparation import WorktreeOptions

    own = config.crew.settings.worktree
    refusal = find_refusal(config, "worktree.setup", own.setup, "worktrees are used without it")
    return WorktreeOptions(
        setup="" if refusal else own.setup,
        setup_s=own.setup_seconds,
        base=own.base,
        refusal=refusal,
        log_dir=config.paths.own_dir / "worktree-setup",
        find_hidden=lambda top: config.boundaries.find_territory(top, readonly=True).hidden,
    )


def choose_shell(options: ToolOptions, paths: Paths, settings: Settings) -> ToolOptions:
    """Set the shell for commands of the model and the user. Raises UsageError."""
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
    """Read the rest of a folder's configuration, given its settings; `flags` override subagents.json.

    `find_machine` finds what this machine can enforce; `tell` receives the warning that there is no sandbox. Raises
    ConfigError for an invalid budget, because running without the intended limit would be worse.
    """
    crew = load_subagents(paths, environment, trusted=loaded.trust.trusted, flags=flags)
    files = load_prompt_files(
        paths,
        trusted=loaded.trust.trusted,
        system=request.system_prompt,
        append=request.append_system_prompt,
        use_context=request.context_files,
        hidden=crew.settings.sandbox.hidden,
    )
    if unread := [item for item in crew.diagnostics if item.severity == "error" and item.field.startswith("budget")]:
        raise ConfigError(f"{unread[0].message}; nothing is started until this is fixed")
    boundaries = Boundaries(
        crew.settings.sandbox,
        home=paths.home,
        agent_dir=paths.agent_dir,
        find_machine=find_machine,
        withheld=paths.withheld,
        exposed=paths.exposed,
        tell=tell,
    )
    return Config(paths, loaded, CurrentSubagents(crew), files, boundaries, (*crew.diagnostics, *files.diagnostics))
