"""Shell commands that the user runs; the model sees them with the next prompt.

They have the rights of the user: the restrictions of the model's commands do not apply.
"""

import asyncio
import codecs
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from retinue.core.clock import Clock
from retinue.core.errors import UsageError, quote
from retinue.core.messages import BashExecutionMessage
from retinue.core.pattern import late_pattern
from retinue.engine.runner import LiveRun

if TYPE_CHECKING:
    from retinue.tools.registry import ToolOptions
    from retinue.tools.shell.output import Output

MAX_COMMAND_BYTES = 100_000
"""The kernel allows 128 KiB per argument."""
# Colours and cursor movements; then all other control characters.
_ESCAPES = late_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = late_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Execution(Struct, rename="camel"):
    output: str
    """Only the end, if it is long."""
    exit_code: int | UnsetType
    """Unset if it was cancelled."""
    cancelled: bool
    truncated: bool
    full_output_path: str | UnsetType = UNSET


class Shell:
    """Runs commands of the user in the directory of the session."""

    def __init__(
        self,
        main: Callable[[], LiveRun],
        options: "Callable[[], ToolOptions]",
        environment: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`main` returns the main agent of the open session, `options` those of its tools."""
        self._main = main
        self._options = options
        self._environment = environment
        self._clock = clock
        self._running: set[asyncio.Task[Execution]] = set()

    async def run(
        self, command: str, on_output: Callable[[str], None] = lambda text: None, *, exclude: bool = False
    ) -> Execution:
        """Run a command and pass its output to `on_output`. `exclude` hides it from the model. Raises UsageError."""
        _check(command)
        main = self._main()
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._execute(main, command, on_output))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # there is one task
        # A task that was cancelled before it started has no result.
        done = Execution("", UNSET, True, False) if task.cancelled() else task.result()
        main.note(
            BashExecutionMessage(
                command=command,
                output=done.output,
                cancelled=done.cancelled,
                truncated=done.truncated,
                timestamp=self._clock.now_ms(),
                exit_code=done.exit_code,
                full_output_path=done.full_output_path,
                exclude_from_context=exclude,
            )
        )
        return done

    def abort(self) -> int:
        return sum(task.cancel() for task in list(self._running))

    async def _execute(self, main: LiveRun, command: str, on_output: Callable[[str], None]) -> Execution:
        from retinue.tools.process import ProcessCommand, run_process
        from retinue.tools.shell.bash import add_prefix
        from retinue.tools.shell.environment import build_environment
        from retinue.tools.shell.output import Output, OutputFile

        cwd, output, text = (
            str(main.setup.cwd),
            Output(OutputFile(main.setup.spill_dir, redact=main.setup.redact)),
            _Text(),
        )

        def take(data: bytes) -> None:
            if piece := text.add(data):
                output.add(piece.encode("utf-8", "replace"))
                on_output(piece)

        code: int | UnsetType = UNSET
        try:
            environment = build_environment(self._environment, {}, cwd)
            options = self._options()
            argv = [_find_shell(cwd, options.shell), "-c", add_prefix(command, options.command_prefix)]
            started = ProcessCommand(argv, cwd, environment)
            tree = await options.trees.find()
            code = (await run_process(started, on_output=take, tree=tree)).code
        except asyncio.CancelledError:
            # Only `abort` cancels this task alone; what was printed so far is the result.
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        except OSError as error:
            raise UsageError(f"the command could not be started: {error.strerror or error}") from error
        finally:
            output.finish()
            output.spill.finish()
        return _to_execution(output, code, main.setup.redact or str)


class _Text:
    """Decodes bytes to printable text, without escape sequences and control characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> str:
        return _CONTROLS.sub("", _ESCAPES.sub("", self._decoder.decode(data)))


def _to_execution(output: "Output", code: int | UnsetType, redact: Callable[[str], str]) -> Execution:
    view = output.view()
    path = output.spill.path
    return Execution(
        output=redact(view.content),
        exit_code=code,
        cancelled=code is UNSET,
        truncated=view.truncated,
        full_output_path=path if path and view.truncated else UNSET,
    )


def _check(command: str) -> None:
    if "\0" in command:
        raise UsageError(f"command {quote(command)} contains a NUL character, which no command may contain")
    if not command.strip():
        raise UsageError("the command is empty")
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
        raise UsageError(f"the command has more than {MAX_COMMAND_BYTES} bytes; put it into a file and run that")


def _find_shell(cwd: str, chosen: str) -> str:
    from retinue.tools.shell.bash import find_shell

    if not os.path.isdir(cwd):
        raise UsageError(f"the working directory {quote(cwd, 200)} does not exist")
    return find_shell(chosen)
