"""The bash tool: runs one shell command in its own process tree, inside the sandbox of its run.

Must not know approvals or the kinds of sandbox.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from io import FileIO
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET, Struct, structs

from retinue.core.environment import OWN, UNCONFINED
from retinue.core.errors import ToolFailed, ToolRetry, UsageError, quote
from retinue.core.launch import Confinement
from retinue.core.model import ToolSpec
from retinue.core.pattern import late_pattern
from retinue.core.tool import Effect, ToolContext, ToolResult, ignore_progress
from retinue.sandbox.status import explain_unavailable
from retinue.tools.arguments import take_seconds, take_text
from retinue.tools.process_tree import TreeProbe, find_program
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import MAX_BYTES, SPILL_CAP, render_size

if TYPE_CHECKING:  # imported by the first call, to start faster
    from retinue.tools.process import Exit, ProcessCommand
    from retinue.tools.process_tree import Tree
    from retinue.tools.shell.output import Output, OutputFile

MAX_TIMEOUT_S = 2_147_483
_SHELL_DIRS = ("/bin", "/usr/bin", "/usr/local/bin")
_PROGRESS_S = 0.1
# The kernel accepts 128 KiB for one argument; longer commands go through a file.
_LONG_COMMAND = 100_000
MAX_TASKS = 2048
"""The number of processes and threads a sandboxed command may have at once."""
MAX_PRINTED = 4 * 1024**3
"""A sandboxed command that prints more bytes is assumed to be endless."""
MAX_FILE = 256 * 1024**2
"""The largest file, in bytes, that a read-only command may create."""
ABORTED = "Command aborted"
"""How pi tells the model that a command was interrupted."""
_UNKILLABLE = "A process of it could not be killed and was left behind"
_EXITED = late_pattern(r"Command exited with code (\d+)(?: \(\w+\))?")
_SPARE_TASKS = 1024
_KEPT_SPILLS = 32
_CLAIMS = (
    "sandbox",
    "unsandbox",
    "dangerous",
    "escalat",
    "with_escalat",
    "privileg",
    "env",
    "cwd",
    "workdir",
    "network",
)
_CROWDED_TRIES, _CROWDED_S = 20, 0.1
_MOVED_TRIES = 5


class BashTool:
    effect = Effect.EXECUTE
    hint = "Run shell commands"
    guidelines: tuple[str, ...] = ()

    def __init__(
        self,
        trees: TreeProbe,
        *,
        environment: Mapping[str, str] | None = None,
        shell: str = "",
        prefix: str = "",
        grace_s: float = 1.0,
        spill_cap: int = SPILL_CAP,
        max_tasks: int = MAX_TASKS,
        max_printed: int = MAX_PRINTED,
    ) -> None:
        """`shell` runs the commands instead of bash; `prefix` is a line run before each command."""
        self._trees = trees
        self._environment = environment
        self._shell = shell
        self._prefix = prefix
        self._grace_s = grace_s
        self._spill_cap = spill_cap
        self._max_tasks = max_tasks
        self._max_printed = max_printed
        self._spills: list[str] = []
        """Files with full outputs; later commands may read them inside their sandbox."""

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(options.trees, environment=options.environment, shell=options.shell, prefix=options.command_prefix)

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "command": {"type": "string", "description": "Command line for bash"},
            "timeout": {"type": "number", "description": "Seconds; no limit by default"},
        }
        schema = {"type": "object", "properties": properties, "required": ["command"]}
        return ToolSpec("bash", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the command until it ends or times out."""
        _refuse_claims(arguments)
        command = take_text(arguments, "command", blank=False)
        timeout_s = take_seconds(arguments, "timeout", most=MAX_TIMEOUT_S)
        script = _to_script(add_prefix(command, self._prefix))
        for _ in range(_MOVED_TRIES):
            result = await self._run(script, timeout_s, context)
            if result is not None:
                return result
        raise ToolFailed(explain_unavailable("repositories in the workspace appear and vanish all the time"))

    async def _run(self, script: bytes, timeout_s: float | None, context: ToolContext) -> ToolResult | None:
        """Run once; None if the command did not start because a path that its sandbox needs has just disappeared."""
        from retinue.tools.process import run_process
        from retinue.tools.shell.output import Output, OutputFile

        cwd = str(context.cwd)
        shell = self._find_shell(cwd)
        output = Output(OutputFile(context.spill_dir, cap=self._spill_cap, redact=context.redact))
        confinement = None if context.confinement is None else await context.confinement.open()
        context.on_cut(lambda reason: _render_cut(output, shell, reason))
        progress = _Progress(output, context, None if confinement is None else self._max_printed)
        progress.begin()
        try:
            with ExitStack() as held:
                arguments_, fds = held.enter_context(_open_script(script))
                command_, tree = await self._prepare(held, [shell, *arguments_], fds, context, confinement)
                for attempt in range(_CROWDED_TRIES):
                    try:
                        ended = await run_process(
                            command_, on_output=progress.take, timeout_s=timeout_s, grace_s=self._grace_s, tree=tree
                        )
                        break
                    except BlockingIOError:
                        # A command killed for having too many processes may not have ended completely yet.
                        if attempt == _CROWDED_TRIES - 1:
                            raise
                        await asyncio.sleep(_CROWDED_S)
            progress.finish()
            output.finish()
            await _finish_spill(output.spill)
        except OSError as error:
            raise _explain_start(error, confinement) from error
        finally:
            progress.close()
            output.spill.close()
        if confinement is not None:
            if output.spill.path:
                self._spills = [*self._spills[1 - _KEPT_SPILLS :], output.spill.path]
            if not _has_begun(output, ended, command_.argv):
                return None
        return _render(output, ended, _Frame(timeout_s, shell, confinement, self._max_printed))

    async def _prepare(
        self,
        held: ExitStack,
        argv: list[str],
        fds: tuple[int, ...],
        context: ToolContext,
        confinement: Confinement | None,
    ) -> "tuple[ProcessCommand, Tree]":
        """Build the process command and its tree, inside the sandbox if the run has one."""
        from retinue.tools.process import ProcessCommand, to_command
        from retinue.tools.shell.environment import GATE, add_gate, build_environment

        inherited = os.environ if self._environment is None else self._environment
        cwd = str(context.cwd)
        if confinement is None:
            passed = () if context.confinement is None else context.confinement.passed
            env = build_environment(inherited, context.environment, cwd, (*UNCONFINED, *OWN, *passed))
            tree = await self._trees.find()
            gated = tree.kind == "namespace" and _is_bash(argv[0])
            return ProcessCommand(argv, cwd, add_gate(env) if gated else env, fds), tree
        env = build_environment(inherited, context.environment, cwd)
        visible = (os.path.dirname(GATE), *self._spills, *filter(None, (self._shell,)))
        launch = held.enter_context(confinement.wrap(argv, env, cwd, pass_fds=fds, visible=visible))
        command, tree = to_command(launch, max_tasks=self._max_tasks)
        if launch.spawner is None and _is_bash(argv[0]):
            limits = f"-u {self._max_tasks + _SPARE_TASKS}"
            if confinement.is_readonly:
                limits += f" -f {MAX_FILE // 1024}"
            command = structs.replace(command, env={**add_gate(command.env), "RETINUE_LIMITS": limits})
        return command, tree

    def _find_shell(self, cwd: str) -> str:
        if not os.path.isdir(cwd):
            raise ToolFailed(f"The working directory {quote(cwd, 200)} does not exist, so no command can run in it.")
        try:
            return find_shell(self._shell)
        except UsageError as error:
            raise ToolFailed(str(error)) from error


def find_shell(chosen: str) -> str:
    """Return the chosen shell, else bash, else sh. Raises UsageError."""
    if chosen and not (os.path.isfile(chosen) and os.access(chosen, os.X_OK)):
        raise UsageError(f"shellPath: {quote(chosen, 200)} is not a program; set another one in your settings.json")
    shell = chosen or find_program("bash", _SHELL_DIRS) or find_program("sh", _SHELL_DIRS)
    if not shell:
        raise UsageError(f"no shell found: neither bash nor sh is in {', '.join(_SHELL_DIRS)}")
    return shell


def add_prefix(command: str, prefix: str) -> str:
    """Put the command prefix of the user's settings before a command."""
    return f"{prefix}\n{command}" if prefix else command


def _refuse_claims(arguments: dict[str, Any]) -> None:
    """Reject arguments of other tools that would widen rights: silently ignoring them would look like success."""
    claimed = [name for name in arguments if name.lower().lstrip("_").startswith(_CLAIMS)]
    if claimed:
        listed = ", ".join(quote(name) for name in claimed)
        raise ToolRetry(
            f"bash does not take {listed}: a command runs in the working directory, in the environment and inside the "
            "sandbox of its run."
        )


def _is_bash(shell: str) -> bool:
    return os.path.basename(shell) == "bash"


def _to_script(command: str) -> bytes:
    if "\0" in command:
        raise ToolRetry(f"command is {quote(command)}: it contains a NUL character, which no command can.")
    try:
        return command.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolRetry(f"command is {quote(command)}: a lone surrogate is not valid text.") from None


@contextmanager
def _open_script(script: bytes) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield the arguments with which a shell runs the script, and the descriptors to pass."""
    if len(script) <= _LONG_COMMAND:
        yield ["-c", script.decode()], ()
        return
    with _open_unnamed() as file:
        file.write(script)
        file.seek(0)
        yield [f"/dev/fd/{file.fileno()}"], (file.fileno(),)


def _open_unnamed() -> "FileIO":
    if hasattr(os, "memfd_create"):
        # In memory, so that a sandbox that restricts paths does not block it.
        return FileIO(os.memfd_create("script", os.MFD_CLOEXEC), "r+")
    import tempfile

    return tempfile.TemporaryFile(buffering=0)


def _explain_start(error: OSError, confinement: Confinement | None) -> ToolFailed:
    reason = error.strerror or str(error)
    if confinement is None:
        return ToolFailed(f"The command could not be started: {reason}.")
    return ToolFailed(explain_unavailable(f"its command could not be started ({reason})"))


def _has_begun(output: "Output", ended: "Exit", argv: Sequence[str]) -> bool:
    """Whether the command started. False if a path that its sandbox needs has disappeared.

    Raises ToolFailed if the launcher (bwrap), which then prints an error, could not set up the sandbox.
    """
    text = output.view().content
    if ended.code != 1 or not text.startswith("bwrap: "):
        return True
    complaint, *more = text.strip().splitlines()
    # Concurrent agents create and remove worktrees of the repository.
    is_gone = any(word in complaint and not os.path.lexists(word) for word in argv if os.path.isabs(word))
    if is_gone and not more:
        return False
    raise ToolFailed(explain_unavailable(complaint[:300]))


async def _finish_spill(spill: "OutputFile") -> None:
    if spill.path:
        await asyncio.to_thread(spill.finish)


class _Progress:
    """Reports the output so far, at most ten times a second."""

    def __init__(self, output: "Output", context: ToolContext, most: int | None) -> None:
        self._output = output
        self._most = most
        self._tell = context.progress
        self._watched = context.progress is not ignore_progress
        self._told_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Report that the command runs before it prints anything, as pi does."""
        if self._watched:
            self._tell(ToolResult([]))

    def take(self, data: bytes) -> bool:
        """Add output; return True if the limit is exceeded."""
        self._output.add(data)
        if self._most is not None:
            self._most -= len(data)
            if self._most < 0:
                return True
        if self._watched and self._timer is None:
            self._plan()
        return False

    def _plan(self) -> None:
        delay_s = self._told_s + _PROGRESS_S - time.monotonic()
        if delay_s <= 0:
            self._emit()
        else:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._emit)

    def finish(self) -> None:
        """Report output that was not reported yet."""
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


class _Frame(Struct, frozen=True):
    """The conditions under which a command ran."""

    timeout_s: float | None
    shell: str
    confinement: Confinement | None
    max_printed: int


def _render(output: "Output", ended: "Exit", frame: _Frame) -> ToolResult:
    """Render the end of the output, what was cut, and how the command ended."""
    parts = [output.view().content or ("" if ended.timed_out else "(no output)"), *_render_notes(output, frame.shell)]
    if frame.confinement is not None and (ended.code or ended.stopped):
        parts += _render_boundary(output, ended, frame.confinement, frame.max_printed)
    if ended.timed_out:
        parts.append(f"Command timed out after {frame.timeout_s:g} seconds")
    elif ended.code:
        signal = f" ({ended.signal_name})" if ended.signal_name else ""
        parts.append(f"Command exited with code {ended.code}{signal}")
    if ended.unkillable:
        parts.append(_UNKILLABLE)
    text = "\n\n".join(part for part in parts if part)
    return ToolResult.of(text, _to_details(output), is_error=ended.timed_out or ended.code != 0)


def read_exit_code(text: str, *, is_error: bool) -> int | None:
    """Return the exit status in the text of a result; None if the command did not end by itself, or did not start."""
    if not is_error:
        return 0
    last = text.removesuffix(f"\n\n{_UNKILLABLE}").rpartition("\n\n")[2]
    found = _EXITED.fullmatch(last)
    return int(found[1]) if found else None


def _render_cut(output: "Output", shell: str, reason: str) -> ToolResult:
    """Render what a command printed before it was killed; its full output may not be complete on disk."""
    parts = [output.view().content, *_render_notes(output, shell, is_complete=False), f"{ABORTED} ({reason})"]
    return ToolResult.of("\n\n".join(part for part in parts if part), {}, is_error=True)


def _render_boundary(output: "Output", ended: "Exit", confinement: Confinement, max_printed: int) -> list[str]:
    """Return which limit ended the command, or a hint that the sandbox caused a failure in its output."""
    if ended.exceeded_processes:
        return [f"[Ended by the sandbox: more than {ended.exceeded_processes} processes and threads at once]"]
    if ended.exceeded_memory:
        return [f"[Ended by the sandbox: more than {render_size(ended.exceeded_memory)} of memory]"]
    if ended.stopped:
        return [f"[Ended by the sandbox: more than {render_size(max_printed)} of output]"]
    if ended.signal_name == "SIGXFSZ":
        return [f"[Ended by the sandbox: a file of more than {render_size(MAX_FILE)}]"]
    hint = confinement.explain(output.view().content)
    return [f"[sandbox: {hint}]"] if hint else []


def _render_notes(output: "Output", shell: str, *, is_complete: bool = True) -> list[str]:
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
        elif is_complete:
            gap = f" (without {render_size(spill.dropped)} in the middle)" if spill.dropped else ""
            notes.append(f"Full output{gap}: {spill.path}")
    if output.invalid:
        notes.append(f"{output.invalid} bytes are not UTF-8 text and are shown as \ufffd")
    if not _is_bash(shell):
        notes.append(f"The command was run by {shell}, not by bash")
    return [f"[{'. '.join(notes)}]"] if notes else []
