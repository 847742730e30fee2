"""Answers requests of other programs about runs: ping, spawn and stop, each reply with its request id.

MUST NOT know the sender or the transport. Fixed values of agent files and rights apply as for any other run.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from retinue.core.definition import ContextMode, Definition
from retinue.core.errors import RetinueError, UsageError
from retinue.core.terminal import escape_line
from retinue.engine.request import RunRequest
from retinue.surfaces.fleet.describe import choose_agent
from retinue.surfaces.fleet.ports import FleetPorts
from retinue.surfaces.fleet.request import AgentCall, pick_model, to_request

PROTOCOL_VERSION = 2
PREFIX = "subagents:rpc:"
METHODS = ("ping", "spawn", "stop")
MAX_ID_CHARS = 128
_SHOWN_CHARS = 200
_DESCRIPTION_CHARS = 60


class SpawnOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of a spawn request; null means missing, unknown fields are ignored."""

    description: str | None = None
    model: str | dict[str, Any] | None = None
    """A name, or an object with `provider` and `id`."""
    max_turns: Any = None
    max_tokens_total: Any = None
    max_cost: Any = None
    """The last three are checked together with all other limits."""
    isolated: bool | None = None
    inherit_context: bool | None = None
    context: ContextMode | None = None
    thinking_level: str | None = None
    is_background: bool | None = None
    """True: it is queued, and the main agent is notified of its end. Otherwise it starts at once, unreported."""
    isolation: Literal["off", "worktree"] | None = None
    cwd: str | None = None
    """Working directory of its tools; its configuration is still that of the project."""
    parent_agent_id: str | None = None


class FleetRpc:
    """Answers requests for one main agent."""

    def __init__(self, open_ports: Callable[[], Awaitable[FleetPorts]], emit: Callable[[str, Any], None]) -> None:
        """`open_ports` returns those of the main agent, or raises RetinueError if there is none."""
        self._open_ports = open_ports
        self._emit = emit

    async def answer(self, method: str, request: Any) -> None:
        """Answer one request; a request without a valid id is dropped."""
        request_id = request.get("requestId") if isinstance(request, dict) else None
        if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_ID_CHARS:
            return
        try:
            data = await self._work(method, request)
            reply = {"success": True} if data is None else {"success": True, "data": data}
        except RetinueError as error:
            reply = {"success": False, "error": str(error)}
        self._emit(f"{PREFIX}{method}:reply:{request_id}", reply)

    async def _work(self, method: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        if method == "ping":
            return {"version": PROTOCOL_VERSION}
        ports = await self._open_ports()
        if method == "spawn":
            return {"id": await self._spawn(request, ports)}
        run_id = request.get("agentId")
        if not isinstance(run_id, str) or not ports.caller.manager.stop(run_id):
            raise UsageError("Agent not found")
        return None

    async def _spawn(self, request: Mapping[str, Any], ports: FleetPorts) -> str:
        caller, options = ports.caller, _read_options(request)
        definition = choose_agent(_read_text(request, "type"), caller)
        call = _to_call(_read_text(request, "prompt"), definition, options)
        parent_id = caller.run_id
        if options.parent_agent_id is not None:
            parent_id = options.parent_agent_id
            if caller.find_run(parent_id) is None or caller.manager.live(parent_id) is None:
                raise UsageError(f'Parent agent "{escape_line(parent_id, _SHOWN_CHARS)}" is not running')
        live = caller.manager.live(parent_id) or caller.manager.root
        cwd = None if options.cwd is None else check_cwd(options.cwd)
        pick = pick_model(
            call, definition, parent=caller.model, resolve=caller.resolve_model, list_models=caller.list_models
        )
        asked = to_request(call, definition, pick, ports.settings, parent=caller.model)
        wanted: RunRequest = replace(asked, cwd=cwd, is_background=bool(options.is_background))
        if wanted.isolation == "worktree" and ports.check_worktree is not None:
            await ports.check_worktree(Path(cwd) if cwd else live.setup.cwd)
        return caller.manager.spawn(wanted, parent_id).id


def check_cwd(path: str) -> str:
    """Return the directory. Raises UsageError if a run cannot work in it."""
    shown = escape_line(path, _SHOWN_CHARS)
    if not os.path.isabs(path) or "\0" in path:
        raise UsageError(f'SpawnOptions.cwd must be an absolute path: "{shown}"')
    if not os.path.isdir(path):
        problem = "is not a directory" if os.path.exists(path) else "does not exist"
        raise UsageError(f'SpawnOptions.cwd {problem}: "{shown}"')
    return path


def _read_options(request: Mapping[str, Any]) -> SpawnOptions:
    given = request.get("options")
    try:
        return SpawnOptions() if given is None else msgspec.convert(given, SpawnOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"SpawnOptions: {error}") from error


def _read_text(request: Mapping[str, Any], name: str) -> str:
    text = request.get(name)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"Missing required argument: {name}.")
    return text


def _to_call(prompt: str, definition: Definition, options: SpawnOptions) -> AgentCall:
    model = options.model
    if isinstance(model, dict):
        model = f"{model.get('provider', '')}/{model.get('id', '')}"
    given = {
        **asdict(options),
        "prompt": prompt,
        "description": options.description or " ".join(prompt.split())[:_DESCRIPTION_CHARS],
        "subagent_type": definition.name,
        "model": model,
        "thinking": options.thinking_level,
    }
    return AgentCall.of(given)
