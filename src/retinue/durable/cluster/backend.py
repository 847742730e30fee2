"""Backend that sends runs of one main agent to workers. Must not know settings and hooks: ports supply them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from retinue.core.clock import Clock
from retinue.core.events import Warned
from retinue.engine.external.program import ProcessContext
from retinue.engine.manager import Manager
from retinue.engine.questions import PendingQuestions
from retinue.engine.run_config import Origin, RemoteRequest
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_file_below
from retinue.engine.setup import RunSetup

if TYPE_CHECKING:  # loaded when the first run is sent
    from retinue.durable.cluster.assignment import SessionContent
    from retinue.durable.cluster.sender import Cluster
    from retinue.durable.cluster.shared_budget import SharedBudget


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """What the backend needs from the sending process."""

    open_cluster: "Callable[[Callable[[str], None]], Cluster]"
    """Opens the connection; its argument receives messages about what is waited for."""
    find_width: Callable[[], int]
    """Returns how many runs of one parent may work at once."""
    build_process_context: Callable[[Path], ProcessContext]
    """Builds what a run in a folder needs to know of the user's environment."""
    find_labels: Callable[[RemoteRequest, LiveRun], Mapping[str, Any]]
    """Returns the custom entries at the start of a run's session, given the main agent."""
    open_below: Callable[[RunSetup, Origin], Awaitable[RunSetup]]
    """Adds hooks and approvals for a child of a run on a worker."""
    guards_below: Callable[[], bool]
    """Returns whether there are any at the moment."""
    questions: PendingQuestions
    clock: Clock
    is_usual: bool = False
    """Whether runs are sent whose definition names no runner."""


class ClusterBackend:
    """Sends the runs of one main agent; connects when the first run is sent."""

    def __init__(self, ports: ClusterPorts) -> None:
        self._ports = ports
        self._cluster: Cluster | None = None
        self._budget: SharedBudget | None = None
        """The budget that local leases also draw on once their children are sent; on a worker they do anyway."""

    @property
    def is_usual(self) -> bool:
        return self._ports.is_usual

    def find_width(self) -> int:
        return self._ports.find_width()

    def send(self, setup: RunSetup, remote_request: RemoteRequest, manager: Manager) -> LiveRun:
        from retinue.durable.cluster.remote_run import RemoteRun

        cluster = self._connect(manager)
        if self._budget is not None:
            remote_request.lease.root.draw_on(self._budget)
        if remote_request.request.isolation is not None:
            from retinue.features.worktree.feature import RemoteWorktree

            setup = setup.change(features=(RemoteWorktree(), *setup.features))
        content = self._build_content(setup, remote_request, manager.root, cluster)
        return RemoteRun(setup, remote_request, self._ports, cluster, manager.remote_children, content)

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    def _connect(self, manager: Manager) -> "Cluster":
        if self._cluster is None:
            bus, run_id = manager.root.bus, manager.root.setup.run_id
            cluster = self._ports.open_cluster(lambda text: bus.publish(Warned(run_id=run_id, text=text)))
            if cluster.home is None:
                from retinue.durable.cluster.shared_budget import SharedBudget

                self._budget = SharedBudget(partial(cluster.find_budget, run_id=run_id), is_limit=False)
            manager.backend.start("cluster", cluster.listen())
            self._cluster = cluster
        return self._cluster

    def _build_content(
        self, setup: RunSetup, remote_request: RemoteRequest, main: LiveRun, cluster: "Cluster"
    ) -> "SessionContent":
        """Return the initial content of the run's session, like that of a local one."""
        from retinue.durable.cluster.assignment import SessionContent

        cover = SessionContent(parent=remote_request.parent_session, name=setup.name, file=remote_request.session_file)
        if (home := cluster.home) is not None:
            # The session is delivered to where the sending run belongs, so it must name paths of that place.
            file = find_file_below(home.file, home.run_id, setup.run_id) if home.file else ""
            cwd = home.translate(str(setup.cwd))
            cover = structs.replace(cover, parent=home.file, file=file if remote_request.session_file else "", cwd=cwd)
        labels = self._ports.find_labels(remote_request, main)
        return structs.replace(cover, labels=dict(labels)) if labels else cover
