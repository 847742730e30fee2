"""What the main agent of one session and its runs are built from. Starts nothing."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from retinue.app.extensions import Extensions
from retinue.app.host import Host
from retinue.core.run import Question
from retinue.core.tool import Tool
from retinue.engine.budget import Lease
from retinue.engine.clock import make_run_id
from retinue.engine.runner import LiveRun
from retinue.models.pool import ChildModels, ModelPool
from retinue.sessions.log import Session
from retinue.settings.config import Config, choose_shell
from retinue.settings.guards import Guards
from retinue.settings.inheritance import inherit_extensions
from retinue.settings.lsp import LanguageServers
from retinue.settings.providers import list_stored
from retinue.settings.web import WebTools
from retinue.tools.registry import ToolOptions, build_extra_tools, build_tools

if TYPE_CHECKING:
    from retinue.app.mcp import McpServers
    from retinue.features.activity import ActivityRecorder
    from retinue.features.checkpoint.feature import Checkpoints


class SessionParts(Struct, frozen=True, eq=False, dict=True):
    """The parts of one session. Created before the main agent; parts that need it call `find_main` when used."""

    host: Host
    session: Session
    config: Config
    run_id: str
    """Of the main agent."""
    lease: Lease
    """The budget of one prompt, including all runs it starts."""
    tool_options: ToolOptions
    web: WebTools
    languages: LanguageServers
    guards: Guards
    """Hooks and approvals for runs."""
    extensions: Extensions
    child_models: ChildModels
    """The models that runs may use."""
    recorder: "ActivityRecorder | None"
    """Records tool activity; None if nothing is saved, or inside another program's agent, which records it itself."""
    checkpoints: "Checkpoints | None"
    """None if nothing is saved, or another program's agent started this process."""
    find_main: Callable[[], LiveRun]
    warn: Callable[[str], None]

    @property
    def models(self) -> ModelPool:
        return self.host.need_models(self.config, self.extensions)

    @property
    def has_session(self) -> bool:
        """Whether the main agent has a session; features of one, such as schedules, are not offered without."""
        return self.host.request.session.kind not in ("none", "children")

    @cached_property
    def child_tools(self) -> dict[str, Tool]:
        """All tools for children, without those of surfaces."""
        wrap = self.host.own.wrap_tool
        return {
            **{name: wrap(tool) for name, tool in build_tools(self.tool_options).items()},
            **build_extra_tools(),
            **self.web.build(),
            **self.languages.build(for_main=False),
            **self.host.own.tools,
        }


def build_parts(
    host: Host,
    session: Session,
    config: Config,
    find_main: Callable[[], LiveRun],
    warn: Callable[[str], None],
) -> SessionParts:
    """Build the parts of one session; `warn` notifies its listeners. Raises UsageError."""
    settings, environment, clock = config.crew.settings, host.environment, host.clock
    options = choose_shell(host.tool_options, config.paths, config.loaded.settings)
    host.redactor.learn(*list_stored(config.paths))
    run_id = make_run_id()
    extensions = Extensions(
        config,
        host.own.extensions,
        lambda item: host.tell((item,)),
        _find_servers(host, config, run_id),
        inherit_extensions(environment),
    )
    return SessionParts(
        host=host,
        session=session,
        config=config,
        run_id=run_id,
        lease=Lease(settings.budget.tokens, settings.budget.cost_usd, source=host.sent.source or host.source),
        tool_options=options,
        web=WebTools(settings, environment, options.trees, find_main),
        languages=LanguageServers(
            settings,
            config.boundaries,
            environment,
            clock,
            trees=options.trees,
            trust=config.loaded.trust,
            is_child=host.is_child,
        ),
        guards=Guards(
            config,
            environment,
            clock,
            host.questions,
            tell=lambda problems, notes: host.tell(problems, *notes),
            warn=warn,
            judge=host.sent.judge,
        ),
        extensions=extensions,
        child_models=_open_child_models(host, config, extensions, find_main),
        recorder=_open_recorder(host, config),
        checkpoints=_open_checkpoints(host, session, config, options, run_id, warn),
        find_main=find_main,
        warn=warn,
    )


def _open_child_models(
    host: Host, config: Config, extensions: Extensions, find_main: Callable[[], LiveRun]
) -> ChildModels:
    scope, settings = host.scope, config.loaded.settings
    # Models that the caller supplies may always be used.
    own = tuple(model.info.ref for model in host.own.models)
    return ChildModels(
        lambda: host.need_models(config, extensions),
        lambda: find_main().setup.model.info,
        lambda: (*own, *(settings.enabled_models if scope.names is None else scope.names)),
    )


def _open_recorder(host: Host, config: Config) -> "ActivityRecorder | None":
    if host.is_child or host.request.session.kind == "none":
        return None
    from retinue.features.activity import ActivityRecorder, find_log

    return ActivityRecorder(find_log(config.paths.own_dir, config.paths.project), host.clock)


def _open_checkpoints(
    host: Host, session: Session, config: Config, options: ToolOptions, run_id: str, warn: Callable[[str], None]
) -> "Checkpoints | None":
    options.file_changes.recorder = None  # of another session in this process
    is_saved = session.path is not None or host.request.session.kind == "children"
    if host.is_child or not is_saved or host.sent.features or not config.crew.settings.checkpoints:
        return None
    trust = config.loaded.trust
    if not (trust.trusted or trust.is_open):
        return None  # git would read the files and the configuration of a folder that nobody trusts
    from retinue.features.checkpoint.feature import Checkpoints
    from retinue.features.checkpoint.store import CheckpointStore
    from retinue.features.sandbox import find_workspace

    paths = config.paths
    top = find_workspace(paths.cwd, paths.home)
    find_territory = partial(config.boundaries.find_territory, paths.cwd, readonly=True)
    store = CheckpointStore(top, paths.own_dir, options.locks, lambda: find_territory().hidden)
    checkpoints = Checkpoints(store, session.id, run_id, warn)
    checkpoints.record(options.file_changes)
    return checkpoints


def _find_servers(host: Host, config: Config, run_id: str) -> "McpServers | None":
    """Return the MCP servers; None if no file names any, without loading the MCP code. `run_id` asks for them."""
    from retinue.settings.paths import has_files

    if not (host.request.mcp_servers or has_files(config.paths, trusted=config.is_trusted)):
        return None
    from retinue.app.mcp import McpServers

    async def ask(question: Question) -> str | None:
        return (
            await host.questions.ask(structs.replace(question, run_id=run_id)) if host.questions.has_frontend else None
        )

    return McpServers(
        config,
        host.request,
        host.environment,
        host.clock,
        trees=host.tool_options.trees,
        tell=host.say,
        learn=host.redactor.learn,
        ask=ask,
    )
