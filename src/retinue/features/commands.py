"""Runs shell commands that settings or agent files name, in a sandbox and bounded in time and output.

Used for commands that the host runs itself, such as `worktree.setup` and `verify`. Must not know who named them.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from retinue.core.errors import ToolFailed
from retinue.core.messages import join_text
from retinue.core.receipt import CommandResult
from retinue.core.tool import Tool, ToolContext
from retinue.engine.setup import RunSetup
from retinue.features.sandbox import Boundaries
from retinue.tools.shell.bash import read_exit_code

MAX_OUTPUT_CHARS = 8_000


async def run_commands(
    commands: Sequence[str], shell: Tool, context: ToolContext, *, timeout_s: float, max_chars: int = MAX_OUTPUT_CHARS
) -> list[CommandResult]:
    """Run commands one after the other until one fails; `timeout_s` is for each. Raises nothing but a cancel.

    `shell` is the tool `bash`; the sandbox is that of the context. Outputs are redacted and their beginning is left out
    above `max_chars`.
    """
    results: list[CommandResult] = []
    for command in commands:
        results.append(await _run(command, shell, context, timeout_s, max_chars))
        if not results[-1].is_good:
            break
    return results


async def run_commands_in(
    place: Path,
    commands: Sequence[str],
    shell: Tool,
    boundaries: Boundaries,
    *,
    timeout_s: float,
    redact: Callable[[str], str] = str,
    max_chars: int = MAX_OUTPUT_CHARS,
) -> list[CommandResult]:
    """Run commands in a directory that no run works in, such as a scratch worktree, in a sandbox of its own.

    They may write in the checkout that contains the directory.
    """
    confined = boundaries.surround_place(place, readonly=False)
    try:
        context = ToolContext(cwd=place, redact=redact, confinement=confined, find_territory=confined.find_territory)
        return await run_commands(commands, shell, context, timeout_s=timeout_s, max_chars=max_chars)
    finally:
        confined.close()


def build_context(setup: RunSetup) -> ToolContext:
    """Return the context of commands that are run in the place of a run, within its sandbox."""
    return ToolContext(
        cwd=setup.cwd,
        run_id=setup.run_id,
        environment=setup.build_environment(None),
        spill_dir=setup.spill_dir,
        redact=setup.redact or str,
        confinement=setup.confinement,
        find_territory=setup.find_territory,
    )


async def _run(command: str, shell: Tool, context: ToolContext, timeout_s: float, max_chars: int) -> CommandResult:
    began_s = time.monotonic()
    try:
        done = await shell.call({"command": command, "timeout": timeout_s}, context)
    except ToolFailed as error:
        return CommandResult(command, None, None, context.redact(str(error)))  # it was not started
    duration_ms = round((time.monotonic() - began_s) * 1000)
    text = context.redact(join_text(done.content))
    code = read_exit_code(text, is_error=done.is_error)
    return CommandResult(command, code, duration_ms, text if len(text) <= max_chars else f"…{text[-max_chars:]}")
