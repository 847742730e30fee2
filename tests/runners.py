"""With which runner the crews of the tests work where nothing else is said: `pytest --runner durable`, or `cluster`.

The product knows no such switch: its default is changed from outside, here and in the program that tests start.
"""

import asyncio
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from tests.farm import Farm

PROGRAM = Path(__file__)
_chosen = "inprocess"


@contextmanager
def use_runner(name: str, farm: "Farm | None" = None) -> Iterator[None]:
    """Let a runner be the default; `farm` has the workers of a cluster."""
    global _chosen
    from retinue.settings import subagents

    merge, before = subagents.merge_layers, _chosen
    changes: dict[str, Any] = {"runner": name}
    if farm is not None:
        changes["cluster"] = subagents.ClusterSettings(database=farm.database)

    def merge_layers(defaults: Any, *rest: Any) -> Any:
        is_crew = isinstance(defaults, subagents.SubagentsConfig)
        return merge(msgspec.structs.replace(defaults, **changes) if is_crew else defaults, *rest)

    subagents.merge_layers, _chosen = merge_layers, name  # type: ignore[assignment]
    try:
        with _hire(farm) if farm is not None else nullcontext():
            yield
    finally:
        subagents.merge_layers, _chosen = merge, before


@contextmanager
def _hire(farm: "Farm") -> Iterator[None]:
    """Let there be a worker when a face sends its first run."""
    from retinue.durable.cluster.sender import Cluster

    real = Cluster._open

    async def open_cluster(cluster: Cluster) -> None:
        await asyncio.to_thread(farm.want)
        await real(cluster)

    Cluster._open = open_cluster  # type: ignore[method-assign]
    try:
        yield
    finally:
        Cluster._open = real  # type: ignore[method-assign]


def is_durable() -> bool:
    """Whether runs are to be durable now."""
    return _chosen == "durable"


class AtOnce:
    """Writes into a ledger without a thread: for tests that turn the clock themselves."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    async def write(self, act: Any, synced: Any = ()) -> Any:
        return self._ledger.transact([act])[0]

    def post(self, act: Any, synced: Any = (), wished: Any = ()) -> None:
        self._ledger.transact([act])

    async def close(self) -> None:
        self._ledger.close()


def make_backend(main: Any, find_file: Any, *, at_once: bool = False) -> Any:
    """A backend whose runs are durable where that was chosen: for tests that have no app around them.

    `main` is the live side of the main agent; `find_file` says where a run of some id has its session.
    """
    from retinue.engine.backend import LocalBackend

    if not is_durable():
        return LocalBackend()
    from retinue.durable.local.database import RunDatabase
    from retinue.durable.local.records import RunRecords
    from retinue.durable.local.writer import WriterThread

    ledger = RunDatabase(main.session.path.parent / "runs.db")
    writer: Any = AtOnce(ledger) if at_once else WriterThread(ledger)
    records = RunRecords(writer, main.session, lambda run, request: find_file(run.id))
    main.bus.listen(records.hear, pieces=False)

    class Backend(LocalBackend):
        async def prepare(self, run: Any, request: Any) -> Any:
            return await records.prepare(run, request)

        async def __aexit__(self, *error: Any) -> None:
            await super().__aexit__(*error)
            await writer.close()

    return Backend()


if __name__ == "__main__":  # the program itself, with another default
    # Whoever starts it works elsewhere, and a script finds its own folder only.
    sys.path[0] = str(PROGRAM.resolve().parents[1])
    from tests.farm import Farm

    _, runner, yard, database, *sys.argv[1:] = sys.argv
    with use_runner(runner, Farm(yard, database) if yard else None):
        sys.argv[0] = "retinue"
        runpy.run_module("retinue", run_name="__main__")
