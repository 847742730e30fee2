"""Run the command of a hook: no shell, the payload as JSON on stdin, a time limit, bounded output.

The program and all its children are gone when the call returns. Must not know points or decisions.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from retinue.core.environment import HOOK, count_level, select
from retinue.core.errors import ToolFailed, quote
from retinue.core.jsonline import encode_json
from retinue.core.launch import ConfinementFactory
from retinue.features.approved import find_change, list_scripts
from retinue.features.hooks.points import LIMIT_S, HookFailed, HookLate, HookSpec
from retinue.tools.process import ProcessCommand, run_process, to_command
from retinue.tools.process_tree import Tree, TreeProbe, find_program

MAX_OUTPUT_BYTES = 256 * 1024
_SHOWN_ERROR_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class HookContext:
    cwd: Path
    project: Path
    environment: Mapping[str, str]
    trees: TreeProbe = field(default_factory=TreeProbe)
    limit_s: float = LIMIT_S
    find_boundary: Callable[[], ConfinementFactory | None] = lambda: None
    """Returns the sandbox for a project's hooks: that of the run they are called for."""


async def run_command(spec: HookSpec, payload: Mapping[str, Any], place: HookContext) -> Any:
    """Run the hook and return its JSON answer; None if it printed nothing. Raises HookFailed."""
    if spec.fault:
        raise HookFailed(f"cannot be run: {spec.fault}")
    # It may run outside of the sandbox, and an agent inside may have changed the file since.
    if path := find_change(spec.files):
        raise HookFailed(f"cannot be run: its file {quote(path, 200)} has changed since it was approved")
    program = find_command(spec, place)
    output, errors = bytearray(), bytearray()

    def take(data: bytes) -> bool:
        output.extend(data)
        return len(output) > MAX_OUTPUT_BYTES

    def take_error(data: bytes) -> None:
        errors.extend(data[: _SHOWN_ERROR_BYTES - len(errors)])

    with tempfile.TemporaryFile(buffering=0) as payload_file:
        payload_file.write(encode_json(payload) + b"\n")
        payload_file.seek(0)
        try:
            async with _prepare(spec, program, place, payload_file.fileno()) as (command, tree):
                exit = await run_process(
                    command, on_output=take, on_error=take_error, timeout_s=place.limit_s, tree=tree
                )
        except ToolFailed as error:
            raise HookFailed(f"cannot be run: {error}") from None
        except (OSError, ValueError) as error:
            raise HookFailed(f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
    if exit.timed_out:
        raise HookLate(f"did not finish within {place.limit_s:g} s")
    if exit.stopped:
        raise HookFailed(f"printed more than {MAX_OUTPUT_BYTES} bytes")
    if exit.code:
        said = errors.decode(errors="replace").strip()
        raise HookFailed(f"ended with status {exit.code}" + (f": {quote(said, 300)}" if said else ""))
    return None if spec.kind == "observer" else _read(bytes(output))


@asynccontextmanager
async def _prepare(
    spec: HookSpec, program: str, place: HookContext, stdin: int
) -> AsyncIterator[tuple[ProcessCommand, Tree]]:
    """Prepare the command: a project's hook runs in the run's sandbox, the user's own hook without one."""
    argv, env = [program, *spec.args], build_environment(place.environment, spec.env)
    confining = None if spec.is_own else place.find_boundary()
    confinement = None if confining is None else await confining.open()
    if confinement is None:
        yield ProcessCommand(argv, str(place.cwd), env, stdin=stdin), await place.trees.find()
        return
    # For a run in a worktree the project is not the workspace, but the project and its scripts must be readable.
    visible = (str(place.project), str(place.cwd), *list_scripts(argv))
    with confinement.wrap(argv, env, str(place.cwd), visible=visible) as launch:
        command, tree = to_command(launch, stdin=stdin)
        yield structs.replace(command, env={**env, **launch.env}), tree


def find_command(spec: HookSpec, place: HookContext) -> str:
    """Return the program that an entry names. Raises HookFailed.

    A bare name is searched on the user's PATH, never in the project: a cloned repository must not bring its own
    program.
    """
    name = os.path.expanduser(spec.command)
    if os.sep in name:
        path = os.path.normpath(os.path.join(spec.folder or place.project, name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        raise HookFailed(f"there is no program {quote(path, 300)}")
    found = find_program(name, list_folders(place))
    if not found:
        raise HookFailed(f"there is no program {quote(name)} on the PATH")
    return found


def list_folders(place: HookContext) -> list[str]:
    """Return the PATH without relative folders and folders in the project."""
    project = os.path.realpath(place.project)
    folders = []
    for folder in place.environment.get("PATH", os.defpath).split(os.pathsep):
        real = os.path.realpath(folder)
        if os.path.isabs(folder) and real != project and not real.startswith(project + os.sep):
            folders.append(folder)
    return folders


def build_environment(inherited: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return the hook's environment: a basic selection and the variables of its entry."""
    return {**select(inherited, HOOK), **count_level(inherited), **configured}


def _read(output: bytes) -> Any:
    if not output.strip():
        return None
    try:
        return msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = output.decode(errors="replace").strip()
        raise HookFailed(f"printed {quote(text)} instead of a JSON object") from None
