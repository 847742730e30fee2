"""The bash tool: one shell command in a process tree of its own; knows no sandbox and no approvals."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from retinue.core.errors import ToolFailed, ToolRetry, quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult, ignore_progress
from retinue.tools.arguments import take_seconds, take_text
from retinue.tools.descriptions import load_description
from retinue.tools.trees import TreeProbe, find_program
from retinue.tools.truncate import MAX_BYTES, SPILL_CAP, render_size

if TYPE_CHECKING:  # what only a call needs is imported by the first one
    from retinue.tools.process import Exit
    from retinue.tools.shell.output import Output, Spill

MAX_TIMEOUT_S = 2_147_483
_SHELL_DIRS = ("/bin", "/usr/bin", "/usr/local/bin")
_PROGRESS_S = 0.1
# The kernel takes 128 KiB for one argument; a longer command goes through a file.
_LONG_COMMAND = 100_000


class BashTool:
    """Runs a shell command and returns what it prints."""

    effect = Effect.EXECUTE
    hint = "Run shell commands"
    guidelines: tuple[str, ...] = ()

    def __init__(
        self,
        trees: TreeProbe,
        *,
        environment: Mapping[str, str] | None = None,
        shell: str = "",
        grace_s: float = 1.0,
        spill_cap: int = SPILL_CAP,
    ) -> None:
        self._trees = trees
        self._environment = environment
        self._shell = shell
        self._grace_s = grace_s
        self._spill_cap = spill_cap

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        properties = {
            "command": {"type": "string", "description": "Command line for bash"},
            "timeout": {"type": "number", "description": "Seconds; no limit by default"},
        }
        schema = {"type": "object", "properties": properties, "required": ["command"]}
        return ToolSpec("bash", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the command to its end, or to the end of its time."""
        from retinue.tools.process import Command, run_process
        from retinue.tools.shell.environment import add_gate, build_environment
        from retinue.tools.shell.output import Output, Spill

        command = take_text(arguments, "command", blank=False)
        timeout_s = take_seconds(arguments, "timeout", most=MAX_TIMEOUT_S)
        script = _to_script(command)
        cwd = str(context.cwd)
        shell = self._find_shell(cwd)
        inherited = os.environ if self._environment is None else self._environment
        output = Output(Spill(context.spill_dir, cap=self._spill_cap))
        progress = _Progress(output, context)
        progress.begin()
        tree = await self._trees.find()
        env = build_environment(inherited, context.environment, cwd)
        if tree.kind == "namespace" and _is_bash(shell):
            env = add_gate(env)
        try:
            with _open_script(script) as (arguments_, fds):
                ended = await run_process(
                    Command([shell, *arguments_], cwd, env, fds),
                    on_output=progress.take,
                    timeout_s=timeout_s,
                    grace_s=self._grace_s,
                    tree=tree,
                )
            progress.finish()
            output.finish()
            await _finish_spill(output.spill)
        except OSError as error:
            raise ToolFailed(f"The command could not be started: {error.strerror or error}.") from error
        finally:
            progress.close()
            output.spill.close()
        return _render(output, ended, timeout_s, shell)

    def _find_shell(self, cwd: str) -> str:
        if not os.path.isdir(cwd):
            raise ToolFailed(f"The working directory {quote(cwd, 200)} does not exist, so no command can run in it.")
        shell = self._shell or find_program("bash", _SHELL_DIRS) or find_program("sh", _SHELL_DIRS)
        if not shell:
            raise ToolFailed(f"No shell found: neither bash nor sh is in {', '.join(_SHELL_DIRS)}.")
        return shell


def _is_bash(shell: str) -> bool:
    return os.path.basename(shell) == "bash"


def _to_script(command: str) -> bytes:
    if "\0" in command:
        raise ToolRetry(f"command is {quote(command)}: it contains a NUL character, which no command can.")
    try:
        return command.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolRetry(f"command is {quote(command)}: it contains a lone surrogate, which is no text.") from None


@contextmanager
def _open_script(script: bytes) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The arguments that make a shell run the script, and the descriptors it needs for that."""
    if len(script) <= _LONG_COMMAND:
        yield ["-c", script.decode()], ()
        return
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(script)
        file.seek(0)
        yield [f"/dev/fd/{file.fileno()}"], (file.fileno(),)


async def _finish_spill(spill: "Spill") -> None:
    if spill.path:
        await asyncio.to_thread(spill.finish)


class _Progress:
    """Tells a watcher what there is, at most ten times a second."""

    def __init__(self, output: "Output", context: ToolContext) -> None:
        self._output = output
        self._tell = context.progress
        self._watched = context.progress is not ignore_progress
        self._told_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Say that the command runs, before it prints anything: as pi does."""
        if self._watched:
            self._tell(ToolResult([]))

    def take(self, data: bytes) -> None:
        self._output.add(data)
        if not self._watched or self._timer is not None:
            return
        delay_s = self._told_s + _PROGRESS_S - time.monotonic()
        if delay_s <= 0:
            self._emit()
        else:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._emit)

    def finish(self) -> None:
        """Tell what is still held back."""
        if self._timer is not None:
            self._timer.cancel()
            self._emit()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _emit(self) -> None:
        self._timer = None
        self._told_s = time.monotonic()
        view = self._output.view(final=False)
        details = _to_details(self._output)
        self._tell(ToolResult.of(view.content, {} if details is UNSET else details))


def _to_details(output: "Output") -> Any:
    view = output.view()
    if not view.truncated:
        return UNSET
    return {"truncation": view.to_details(), "fullOutputPath": output.spill.path or None}


def _render(output: "Output", ended: "Exit", timeout_s: float | None, shell: str) -> ToolResult:
    """The result: the end of the output, what was cut from it, and how the command ended."""
    parts = [output.view().content or ("" if ended.timed_out else "(no output)"), *_render_notes(output, shell)]
    if ended.timed_out:
        parts.append(f"Command timed out after {timeout_s:g} seconds")
    elif ended.code:
        signal = f" ({ended.signal_name})" if ended.signal_name else ""
        parts.append(f"Command exited with code {ended.code}{signal}")
    if ended.unkillable:
        parts.append("A process of it could not be killed and was left behind")
    text = "\n\n".join(part for part in parts if part)
    return ToolResult.of(text, _to_details(output), is_error=ended.timed_out or ended.code != 0)


def _render_notes(output: "Output", shell: str) -> list[str]:
    notes = []
    view = output.view()
    if view.truncated:
        first = view.total_lines - view.output_lines + 1
        if view.last_line_partial:
            size, whole = render_size(view.output_bytes), render_size(output.last_line_bytes)
            notes.append(f"Showing the last {size} of line {view.total_lines} ({whole} long)")
        else:
            limit = f" ({render_size(MAX_BYTES)} limit)" if view.truncated_by == "bytes" else ""
            notes.append(f"Showing lines {first}-{view.total_lines} of {view.total_lines}{limit}")
        spill = output.spill
        if spill.error:
            notes.append(f"The full output could not be kept: {spill.error}")
        else:
            gap = f" (without {render_size(spill.dropped)} in the middle)" if spill.dropped else ""
            notes.append(f"Full output{gap}: {spill.path}")
    if output.invalid:
        notes.append(f"{output.invalid} bytes are not UTF-8 text and are shown as \ufffd")
    if not _is_bash(shell):
        notes.append(f"There is no bash here: the command was run by {shell}")
    return [f"[{'. '.join(notes)}]"] if notes else []
