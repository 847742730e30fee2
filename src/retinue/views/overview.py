"""Queries that start no agent: models, sessions, agents, schedules, trust and approvals, configuration checks."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from retinue.core.errors import ModelError, RetinueError, UsageError, quote
from retinue.settings.layers import load_settings
from retinue.settings.paths import Paths, find_paths, find_session_dir
from retinue.settings.request import Request
from retinue.settings.schema import Settings
from retinue.settings.subagents import load_subagents

if TYPE_CHECKING:
    from retinue.core.diagnostics import Item
    from retinue.features.schedule.store import ScheduleStore
    from retinue.settings.doctor_report import DoctorReport
    from retinue.settings.preferences import Preference as Preference
    from retinue.settings.preferences import Preferences as Preferences
    from retinue.settings.roster import AgentDetails as AgentDetails
    from retinue.settings.roster import Roster as Roster
    from retinue.tools.rights_chain import RightsChain as RightsChain


def open_roster(
    request: Request, say: Callable[[str], None], has_model: Callable[[str], bool] | None = None
) -> "Roster":
    """Return the agents of this folder, with methods to change their files.

    `has_model` tells whether a model name can be resolved; by default this is checked for the next session.
    """
    from retinue.core.tool_table import SURFACE_TOOLS
    from retinue.settings.rights_preview import PreviewInput
    from retinue.settings.roster import Roster

    paths = find_paths(".", os.environ)
    loaded = load_settings(paths, os.environ, approve=request.approve)
    crew = load_subagents(paths, os.environ, trusted=loaded.trust.trusted)
    for text in (*(item.message for item in (*loaded.diagnostics, *crew.diagnostics)), loaded.trust.notice):
        if text:
            say(text)
    around = PreviewInput(crew.layers, os.environ, SURFACE_TOOLS)
    has_model = has_model or partial(_has_model, request, paths, loaded.settings)
    return Roster(paths, loaded, crew.settings, around=around, has_model=has_model)


def _has_model(request: Request, paths: Paths, settings: Settings, name: str) -> bool:
    """Whether the model that an agent names could be resolved in the next session."""
    from retinue.settings.providers import load_registry, to_wishes

    registry, _ = load_registry(paths, os.environ, offline=request.offline)
    try:
        home = registry.choose(to_wishes(request, settings, None, registry)).info
        registry.reach(home, request.models or settings.enabled_models).resolve(name)
    except ModelError:
        return False
    return True


def run_checkup(request: Request, more: "Callable[[], Iterable[Item]]") -> "DoctorReport":
    """Check the whole configuration, then the items of `more`. Starts no agent and calls no model."""
    from retinue.settings.doctor_report import DoctorReport, examine

    report = examine(os.environ, approve=request.approve, offline=request.offline)
    return DoctorReport((*report.items, *more()))


def list_models(request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """All models, usable ones first, and the default model, as printed by `retinue models --json`."""
    from retinue.settings.providers import load_registry, to_wishes

    paths = find_paths(".", os.environ)
    loaded = load_settings(paths, os.environ, approve=request.approve)
    registry, problems = load_registry(paths, os.environ, offline=request.offline)
    for problem in (*loaded.diagnostics, *problems):
        say(problem.message)
    default = ""
    try:
        choice = registry.choose(to_wishes(request, loaded.settings, None, registry))
        default = choice.info.ref
        if choice.reason and (request.model or request.provider):
            say(choice.reason)
    except ModelError as error:
        if request.model or request.provider:
            raise
        say(str(error))
    for text in registry.list_moves():
        say(text)
    return registry.list_models(default)


def refresh_models(request: Request, say: Callable[[str], None]) -> bool:
    """Fetch model lists from providers and store them; False if a provider could not be reached.

    Raises UsageError or ConfigError.
    """
    from concurrent.futures import ThreadPoolExecutor

    from msgspec import to_builtins

    from retinue.models.catalog import APIS, Provider, load_catalog
    from retinue.models.model_list import ModelList, fetch_list
    from retinue.settings.preferences import write_keys
    from retinue.settings.providers import find_list_file, is_offline, load_registry

    if is_offline(os.environ, offline=request.offline):
        raise UsageError("--refresh needs the network, which --offline and PI_OFFLINE forbid")
    paths = find_paths(".", os.environ)
    registry, _ = load_registry(paths, os.environ, offline=True)
    asked = [each for each in registry.providers.values() if each.takes_new and each.api in APIS]
    if request.provider:
        named = registry.names.find_provider(request.provider)
        asked = [each for each in asked if each.id == named]
    asked = [each for each in asked if registry.keys.has_key(each)]
    if not asked:
        whom = f"{quote(request.provider)} is" if request.provider else "there is"
        raise UsageError(f"{whom} no built-in provider with a key; providers in models.json list their models there")

    def fetch(provider: Provider) -> ModelList | str:
        try:
            return fetch_list(provider, lambda: registry.unlock(provider.models[0]))
        except RetinueError as error:
            return str(error)

    with ThreadPoolExecutor(len(asked)) as pool:
        results = list(pool.map(fetch, asked))
    for provider, found in zip(asked, results, strict=True):
        if isinstance(found, str):
            say(f"{found}; its stored model list is unchanged")
            continue
        write_keys(find_list_file(paths), {f"providers.{provider.id}": to_builtins(found)})
        known = {model.id for model in load_catalog()[provider.id].models}
        new = [each.id for each in found.models if each.id not in known]
        say(f"{provider.id}: {len(found.models)} models, {len(new)} of them not built in")
    return not any(isinstance(found, str) for found in results)


def list_sessions(
    request: Request, *, everything: bool, folder: str = ".", children: bool | None = None
) -> list[dict[str, Any]]:
    """The sessions of a folder, newest first; with `everything`, of all folders and of subagents too.

    `children` says whether those of subagents are listed.
    """
    from retinue.sessions.entry import TimestampFormat
    from retinue.sessions.search import list_directories
    from retinue.sessions.search import list_sessions as find_sessions

    paths = find_paths(folder, os.environ)
    settings = load_settings(paths, os.environ, approve=request.approve).settings
    flag = request.session.directory or None
    directory = find_session_dir(paths, os.environ, flag=flag, setting=settings.session_dir)
    folders = [directory, *(list_directories(paths.agent_dir) if everything and flag is None else ())]
    found = find_sessions(
        dict.fromkeys(folders),
        children=everything if children is None else children,
        cache=paths.own_dir / "sessions.json",
        cwd=None if everything else str(paths.cwd),
    )
    stamp = TimestampFormat()
    return [
        {
            "id": info.id,
            "path": info.path,
            "cwd": info.cwd,
            "created": info.created,
            "modified": stamp.render(info.modified_ms),
            "messages": info.messages,
            "name": info.name or None,
            "parentSession": info.parent_session,
            "firstMessage": info.first_message,
        }
        for info in found
    ]


def list_schedules(project: Path | None = None, session_id: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    """The scheduled agents of one session or the whole project, as stored, and problems with their files."""
    from retinue.features.schedule.job import to_entry

    stores = _open_stores(project, session_id)
    jobs = [to_entry(job) for store in stores for job in store.jobs]
    return jobs, [problem.message for store in stores for problem in store.problems]


def cancel_schedule(job_id: str, project: Path | None = None, session_id: str = "") -> bool:
    """Delete a scheduled agent of one session or the whole project; False if it does not exist.

    Raises RetinueError.
    """
    stores = _open_stores(project, session_id)
    return any([store.remove(job_id) is not None for store in stores if store.find(job_id) is not None])


def _open_stores(project: Path | None, session_id: str) -> "list[ScheduleStore]":
    from retinue.features.schedule.store import ScheduleStore
    from retinue.features.schedule.store import list_sessions as list_scheduled

    project = project or find_paths(".", os.environ).project
    return [ScheduleStore(project, each) for each in ([session_id] if session_id else list_scheduled(project))]


Kind = Literal["mcp", "hook"]


class ApprovalEntry(NamedTuple):
    """One MCP server or hook in the configuration."""

    name: str
    state: str
    """`ready`, `disabled`, `unapproved` or `changed`."""
    about: str
    """The command or address."""
    path: str
    """The file that configures it."""
    is_projects: bool
    """True if it comes from the project, False if from the user."""
    needs_consent: bool
    """True if the user must approve it: it comes from the project or runs files of the project."""


def list_entries(request: Request, kind: Kind) -> tuple[list[ApprovalEntry], list[str]]:
    """All MCP servers or hooks, and problems with their files."""
    paths = find_paths(".", os.environ)
    trusted = load_settings(paths, os.environ, approve=request.approve).trust.trusted
    if kind == "mcp":
        from retinue.settings.mcp import load_servers

        servers = load_servers(paths, os.environ, trusted=trusted)
        rows = [
            ApprovalEntry(each.name, item.state, each.place, str(each.path), each.level != "user", item.is_bound)
            for item in servers.found
            for each in (item.server,)
        ]
        return rows, [problem.message for problem in servers.diagnostics]
    from retinue.settings.hooks import load_hooks
    from retinue.settings.switches import load_switches

    own, project = load_switches(paths, trusted=trusted)[0].disabled_hooks
    hooks = load_hooks(paths, trusted=trusted, disabled=own, muted=project)
    found = [
        ApprovalEntry(each.name, item.state, each.describe(), str(each.path), each.scope == "project", item.is_bound)
        for item in hooks.found
        for each in (item.spec,)
    ]
    return found, [problem.message for problem in hooks.diagnostics]


def rename_session(path: str, name: str) -> None:
    """Rename a session that is not open anywhere. Raises SessionError."""
    from retinue.engine.clock import SystemClock, make_uuid
    from retinue.sessions.log import Session

    session = Session.open(path, clock=SystemClock(), new_id=make_uuid)
    try:
        session.append_session_info(name)
    finally:
        session.close()


def delete_session(path: str) -> None:
    """Delete a session that is not open anywhere, with the sessions of its runs. Raises SessionError."""
    from retinue.sessions import tree

    tree.delete_session(Path(path))
