"""Connects the tool `Agent` to the scheduler: a call becomes a job, and a due job becomes a run."""

from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import partial
from typing import Any

from msgspec.structs import asdict, replace

from retinue.core.definition import Definition
from retinue.core.run import Status
from retinue.features.schedule.job import Job, create_job
from retinue.features.schedule.parse import parse_schedule
from retinue.features.schedule.scheduler import JobChange, Ports, Scheduler
from retinue.features.schedule.zone import LocalZone, to_local
from retinue.surfaces.fleet.describe import choose_agent
from retinue.surfaces.fleet.ports import FleetPorts, ScheduledCall
from retinue.surfaces.fleet.request import AgentCall, BadModel, ModelSelection, pick_model, to_request


def schedule_call(
    scheduler: Scheduler, now_ms: int, text: str, members: Mapping[str, Any], zone: tzinfo | None = None
) -> ScheduledCall:
    """Create a job with these members. Raises RetinueError if it is invalid."""
    schedule = parse_schedule(text, to_local(now_ms, zone or LocalZone()))
    job = create_job(schedule, now_ms=now_ms, **members)
    scheduler.add(job)
    return ScheduledCall(job.id, job.name, job.schedule_type, job.next_run or "", schedule.note)


def open_scheduler_ports(ports: FleetPorts, announce: Callable[[JobChange], None]) -> Ports:
    """Return what a scheduler needs to start jobs; `ports` are those of the main agent."""
    caller = ports.caller

    async def spawn(job: Job) -> str:
        definition = choose_agent(job.subagent_type, caller)
        call = AgentCall.of({**asdict(job), "description": job.name, "schedule": None})
        request = to_request(call, definition, pick(call, definition), ports.settings, parent=caller.model)
        if request.isolation == "worktree" and ports.check_worktree is not None:
            live = caller.manager.live(caller.run_id) or caller.manager.root
            await ports.check_worktree(live.setup.cwd)
        request = replace(
            request,
            skips_queue=True,
            grant=job.grant,
            extra_depth=max(0, job.depth or 0),
            # Stored with the run: a process that died before it knew the run's id finds the run again.
            occasion=f"{job.id} {job.last_run}",
        )
        return caller.manager.spawn(request, caller.run_id).id

    def pick(call: AgentCall, definition: Definition) -> ModelSelection:
        choose = partial(pick_model, parent=caller.model, resolve=caller.resolve_model, list_models=caller.list_models)
        try:
            return choose(call, definition)
        except BadModel:
            # The model existed when the job was created; the parent's is better than no run at all.
            return choose(replace(call, model=""), definition)

    async def settled(run_id: str) -> Status:
        await caller.manager.wait(run_id)
        run = caller.manager.find(run_id)
        return Status.INTERRUPTED if run is None else run.status

    return Ports(spawn, settled, announce)
