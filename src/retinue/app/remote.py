"""Runs on other machines: the part that needs settings, hooks and a Retinue; the rest is in `durable/cluster`.

The only file of `app` that knows the cluster. It passes on callables and plain values only.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.app.host import SentRun
from retinue.core.definition import Definition
from retinue.core.diagnostics import Item
from retinue.core.environment import MARKS, WORKER_DIR, select
from retinue.core.errors import RetinueError, UsageError
from retinue.engine.build import build_judged
from retinue.engine.clock import SystemClock
from retinue.engine.rights import RevokedToolsHook
from retinue.engine.run_config import REMOTE, Origin, RemoteRequest
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature, RunSetup
from retinue.settings.paths import find_agent_dir, find_home, find_paths
from retinue.settings.request import Request, SessionStart, SessionWish
from retinue.settings.subagents import SubagentsConfig, find_user_file, load_subagents

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue
    from retinue.app.session_parts import SessionParts
    from retinue.durable.cluster.assignment import Assignment
    from retinue.durable.cluster.check import ClusterState, PruneResult
    from retinue.durable.cluster.remote_approvals import RemoteApprovals
    from retinue.durable.cluster.sender import Cluster
    from retinue.durable.cluster.worker import WorkerJob
    from retinue.engine.budget import Source
    from retinue.engine.manager import RemoteRuns
    from retinue.settings.config import Config

DATABASE = "RETINUE_DATABASE"


class WorkerOptions(Struct, frozen=True):
    database: str = ""
    """The address; empty for that of the environment or the user's settings."""
    slots: int = 20
    """Maximum number of simultaneous runs, for each depth."""
    total: int | None = None
    """Maximum number of simultaneous runs on all workers; 0 for no limit, None for the last value set."""
    drain_s: float = 30.0
    """Time for runs to finish after a stop."""
    approve: bool = False
    """Whether to trust projects that are trusted by the sender."""


def find_database(settings: SubagentsConfig, environment: Mapping[str, str]) -> str:
    """Return the address of the shared database; empty if there is none."""
    return environment.get(DATABASE, "").strip() or settings.cluster.database


def open_remote(parts: "SessionParts", cluster: "Cluster | None" = None) -> "RemoteRuns | None":
    """Return the backend for the cluster in the settings, or for `cluster`; None if there is none."""
    config, host = parts.config, parts.host
    environment = host.environment
    if cluster is None and not find_database(config.crew.settings, environment):
        return None
    from retinue.durable.cluster.backend import ClusterBackend, ClusterPorts
    from retinue.settings.run_config import build_process_context

    def connect(warn: Callable[[str], None]) -> "Cluster":
        return cluster or open_cluster(config, environment, warn)

    def find_width() -> int:
        settings = config.crew.settings
        # On other machines their workers decide how many runs can work.
        most = settings.cluster.max_concurrent if cluster is not None or settings.runner == REMOTE else 0
        return max(settings.max_concurrent, most)

    below = _RemoteChildGuards(parts)
    return ClusterBackend(
        ClusterPorts(
            open_cluster=connect,
            find_width=find_width,
            build_process_context=partial(
                build_process_context, config, parts.child_models, environment, tuple(parts.child_tools)
            ),
            find_labels=_find_labels,
            open_below=below.open,
            guards_below=below.has_guards,
            questions=host.questions,
            clock=host.clock,
            is_usual=cluster is not None,
        )
    )


def open_cluster(config: "Config", environment: Mapping[str, str], warn: Callable[[str], None]) -> "Cluster":
    """Open the cluster of the settings; `warn` receives what it waits for."""
    from retinue.durable.cluster.database import describe_address
    from retinue.durable.cluster.sender import Cluster
    from retinue.durable.trouble import TroubleNotifier

    settings, boundaries = config.crew.settings, config.boundaries
    url = find_database(settings, environment)
    alarm = TroubleNotifier(warn, subject=f"the cluster's database {describe_address(url)}")
    return Cluster(
        url,
        use_remote=settings.cluster.use_remote,
        alarm=alarm,
        find_hidden=lambda cwd: boundaries.find_territory(cwd, readonly=True).hidden,
    )


def _find_labels(remote_request: RemoteRequest, main: LiveRun) -> dict[str, Any]:
    """Return the custom entries of a dispatched run's session; only the main agent dispatches."""
    if remote_request.request.surface != "dispatch":
        return {}
    from retinue.surfaces.dispatch.tool import META, describe_origin

    return {META: describe_origin(main.session.id, remote_request.definition.name)}


class _RemoteChildGuards:
    """Hooks and approvals for runs that a run on another machine has started."""

    def __init__(self, parts: "SessionParts") -> None:
        self._parts = parts

    def has_guards(self) -> bool:
        """Return whether hooks, extensions or approvals here may have to judge a run that is started elsewhere."""
        if self._parts.guards.is_set or self._parts.extensions.has_any:
            return True
        return any(definition.hooks for definition in self._parts.config.roster.glance().list())

    async def open(self, above: RunSetup, origin: Origin) -> RunSetup:
        """Return a setup with the hooks and approvals that the run would have if it was started here."""
        guards = self._parts.guards
        definition = self._find_definition(origin)
        additions = await self._parts.extensions.load_guards(definition)
        # Approvals because of the `dispatch` surface are asked for on the machine that dispatched.
        surface = "fleet" if origin.surface == "dispatch" else origin.surface
        features = guards.surround_definition(
            definition, additions.points, surface=surface, readonly=origin.readonly, is_confined=origin.confined
        )
        if guards.judge is not None:
            features.append(guards.judge.surround(origin))
        revoked = self._parts.host.revoked
        revoked.place(origin.run_id, above.run_id)
        guard = RevokedToolsHook(revoked, origin.run_id)
        return build_judged(above, origin.run_id, (guard, *additions.hooks), features)

    def _find_definition(self, origin: Origin) -> Definition:
        """Return the agent as it is defined here; an agent that only the other machine has gets the default rules."""
        found = self._parts.config.roster.glance().find(origin.agent, origin.surface)
        return found or Definition(name=origin.agent, dialect="pi", source="user", path="")


async def start_worker(wish: WorkerOptions, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Run a worker until `stop` is set. Raises RetinueError."""
    from retinue.durable.cluster.shared_gates import DatabaseGates
    from retinue.durable.cluster.worker_host import run_worker

    url, folder = name_database(wish.database, os.environ), find_worker_dir(os.environ)

    def open_agent(
        job: "WorkerJob",
        cluster: "Cluster",
        judge: "RemoteApprovals",
        features: Sequence[Feature],
        tell_missing: Callable[[str], None],
        source: "Source",
    ) -> "Retinue":
        from retinue.app.retinue import Retinue

        assignment = job.assignment
        return Retinue(
            job.workspace,
            request=to_request(job, job.sessions / assignment.session, approve=wish.approve),
            environment={**os.environ, **select(assignment.marks, MARKS), **job.extra_environment},
            sent=SentRun(
                features=features,
                open_remote=partial(open_remote, cluster=cluster),
                judge=judge,
                names=assignment.names,
                refusals=assignment.refusals,
                tell_missing=tell_missing,
                source=source,
                gates=DatabaseGates(job.budget.database, SystemClock()),
            ),
            output_transcript=False,  # transcripts would be in the workspace and be returned as its changes
        )

    await run_worker(url, folder, open_agent, stop, say, slots=wish.slots, total=wish.total, drain_s=wish.drain_s)


def to_request(job: "WorkerJob", session_file: Path, *, approve: bool = False) -> Request:
    """Return the request that a process of its own would get from its command line."""
    from retinue.durable.cluster.worker_host import build_sections

    assignment = job.assignment
    # The sender is not trusted: its approval counts only together with one of this worker.
    trust = (True if approve else None) if assignment.trusted else False
    # Only this provider, even if another one has a model with the whole name.
    provider, _, model = assignment.model.partition("/")
    request = Request(
        model=model,
        provider=provider,
        thinking=assignment.thinking,
        session=SessionWish("named", str(session_file), is_alone=True, is_fleeting=True, cover=_to_cover(assignment)),
        tools=assignment.tools,
        sections=build_sections(assignment, str(job.workspace), job.former),
        context_files=False,
        skills=False,
        approve=trust,
        limits=assignment.limits,
    )
    return replace(request, is_child=True, is_hosted=True)


def _to_cover(assignment: "Assignment") -> SessionStart:
    cover = assignment.cover
    return SessionStart(cover.id, cover.parent, cover.name, cover.cwd or assignment.cwd, cover.labels)


def find_worker_dir(environment: Mapping[str, str]) -> Path:
    """Return where a worker keeps repositories and workspaces.

    Each run sees only its own directory there. `~/.cache` would be writable for all of them.
    """
    if named := environment.get(WORKER_DIR, ""):
        return Path(named).expanduser()
    return find_agent_dir(environment, find_home(environment)) / "retinue" / "worker"


def name_database(flag: str, environment: Mapping[str, str]) -> str:
    """Return the database address from flag, environment or the user's file. Raises UsageError if none is set."""
    found = flag.strip() or find_database(_load_own(environment), environment)
    if not found:
        where = find_user_file(find_paths(".", environment))
        raise UsageError(
            "no database is named: give --database postgresql://USER@HOST/NAME, set RETINUE_DATABASE, "
            f"or set cluster.database in {where}"
        )
    return found


def read_cluster(flag: str) -> "ClusterState":
    """Return workers, queues, runs and lag. Raises RetinueError."""
    from retinue.durable.cluster import check

    return check.read_cluster(name_database(flag, os.environ))


def prune_cluster(flag: str, days: int, say: Callable[[str], None], *, everything: bool = False) -> "PruneResult":
    """Delete data of runs that finished more than `days` days ago. Raises RetinueError."""
    from retinue.durable.cluster import check

    return check.prune_cluster(name_database(flag, os.environ), days, say, everything=everything)


def fetch_run(flag: str, run: str) -> str:
    """Fetch the changes of a finished run to a local git branch and return its name. Raises RetinueError."""
    from retinue.durable.cluster import check
    from retinue.views.rewind import open_store

    return check.fetch_run(name_database(flag, os.environ), run, open_store(os.getcwd()))


def check_remote(environment: Mapping[str, str]) -> list[Item]:
    """Return what `retinue doctor` reports about the cluster; empty if none is wanted. Changes nothing."""
    try:
        settings = _load_own(environment)
    except RetinueError:
        return []  # reported by other checks
    if url := find_database(settings, environment):
        from retinue.durable.cluster.check import check_cluster

        return check_cluster(url, find_worker_dir(environment), is_named=bool(environment.get(WORKER_DIR)))
    if settings.runner != REMOTE:
        return []
    where = find_user_file(find_paths(".", environment))
    detail = f"{where}: runner is cluster: set cluster.database there, or RETINUE_DATABASE; until then runs work here"
    return [Item("warn", "cluster", "No database for runs on other machines", detail)]


def _load_own(environment: Mapping[str, str]) -> SubagentsConfig:
    # A project's file must not set this.
    return load_subagents(find_paths(".", environment), environment, trusted=False).settings
