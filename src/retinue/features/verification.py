"""Verifies the result of a run, and records what the host saw of its work: commands, changed files, commit.

When the run says that it is done, the host runs the commands that verify its result, where the run works and in its
sandbox. If one fails, the run gets the output and may correct itself at most twice. Must not know surfaces.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from retinue.core.errors import quote
from retinue.core.events import Event, ToolFinished, ToolStarted
from retinue.core.messages import TextContent, ToolCall
from retinue.core.receipt import VERIFICATION_FAILED, CommandResult, FileReceipt, Receipts, Verification
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Amendment, Effect, Tool, ToolResult, list_aliases
from retinue.engine.calls import ask_hooks
from retinue.engine.setup import Feature, ListeningFeature, RunSetup
from retinue.features.changed_files import FileListing, find_changed_files, has_listing, list_files
from retinue.features.commands import build_context, run_commands
from retinue.features.sandbox import find_workspace
from retinue.tools.registry import ToolOptions
from retinue.tools.shell.bash import BashTool, read_exit_code

MAX_CORRECTIONS = 2
MAX_KEPT = 1_000
"""Maximum number of commands of the agent that are kept; the last ones."""
MAX_KEPT_CHARS = 500
_FILE, _FILES = "commands.jsonl", "files.json"
_SHOWN_CHARS = 4_000
_ERROR_CHARS = 1_000
_SHELL = list_aliases(("bash",))
_LEAVE_S = 3.0
"""Time to find the changed files of a run that did not end by itself."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The commands that verify the result of one run."""

    commands: tuple[str, ...] = ()
    """Those of a person, a program or a file."""
    asked: tuple[str, ...] = ()
    """Those that a model named: hooks and approvals are asked about them as about calls of the run."""
    refused: tuple[str, ...] = ()
    """Why further ones are not run."""
    timeout_s: float = 600.0
    """Of each command."""

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.commands, *self.asked)))


class _SeenFiles(msgspec.Struct):
    """The files that changed before the listing that is compared next."""

    own: dict[str, FileReceipt] = {}
    others: dict[str, FileReceipt] = {}
    """Those that commands changed which verify the result."""
    commit: str | None = None
    notes: tuple[str, ...] = ()
    is_verifying: bool = False
    """Whether such commands are running."""


class VerificationFeature(ListeningFeature, Feature):
    """The commands, the changed files and the verification of one run."""

    name = "verification"

    def __init__(
        self,
        options: VerifyOptions,
        shell: Tool | None = None,
        *,
        watches: bool = False,
        is_elsewhere: bool = False,
        home: Path | None = None,
        folder: Path | None = None,
        open_verification: Callable[[str], AbstractAsyncContextManager[None]] = lambda run: nullcontext(),
    ) -> None:
        """`watches`: it may change files here, which are compared; `is_elsewhere`: its calls run in another process.

        `shell` runs the commands, by default the builtin one. `folder` keeps, for each run, what must survive this
        process. The commands run in the context manager that `open_verification` returns.
        """
        self.options = options
        self._shell = shell
        self._watches = watches
        self._is_elsewhere = is_elsewhere
        self._home = home
        self._beginning = asyncio.Lock()
        self._open_verification = open_verification
        self._parent = folder
        self._folder: Path | None = None
        self._began: dict[str, int] = {}
        """The commands that are running: their places in the list, by call."""
        self._commands: list[CommandResult] = []
        self._results: tuple[CommandResult, ...] = ()
        self._verification: Verification = "not verified"
        self._refusals: list[str] = []
        self._left = MAX_CORRECTIONS
        self._before: FileListing | None = None
        self._seen = _SeenFiles()
        self._receipts: Receipts | None = None
        self._setup: RunSetup | None = None

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Tell the agent how its result is verified."""
        self._folder = None if self._parent is None else self._parent / setup.run_id
        self._commands, self._results, self._verification = self._read_commands(), (), "not verified"
        self._left, self._receipts, self._setup = MAX_CORRECTIONS, None, setup
        self._before, self._seen = None, self._read_files()
        if self._watches and (self._is_elsewhere or (self._folder is not None and has_listing(self._folder))):
            await self._begin()
        if self._seen.is_verifying:
            await self._count(is_own=False)
        is_asked = self._watches or self.options.all or self.options.refused
        reviewers = (*setup.reviewers, self) if is_asked else setup.reviewers
        # After the other hooks: a call that is refused is no call.
        setup = setup.change(reviewers=reviewers, hooks=(*setup.hooks, self))
        if not self.options.all:
            return setup
        listed = "\n".join(f"- `{command}`" for command in self.options.all)
        section = (
            f"<verification>\nWhen you end, these commands are run in your working directory, and all must succeed:\n"
            f"{listed}\nIf one fails, you get its output. Do not change what they check to make them succeed.\n"
            "</verification>"
        )
        return setup.change(sections={**setup.sections, "verification": section})

    async def before(self, call: ToolCall, tool: Tool) -> None:
        """Keep a command, and remember the files as they are before the first call that may change one."""
        if call.name in _SHELL:
            self._keep(call.id, CommandResult(self._shorten(call.arguments), None, None))
        if self._watches and tool.effect not in (Effect.READ, Effect.NETWORK):
            await self._begin()

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        return result

    async def _begin(self) -> None:
        async with self._beginning:
            if self._before is None and self._setup is not None:
                root = find_workspace(self._setup.cwd, self._home)
                self._before = await list_files(str(root), self._folder)

    async def _count(self, *, is_own: bool, goes_on: bool = True) -> None:
        """Count what has changed since the last listing as the agent's or not, and list the files again."""
        seen = self._seen
        if self._before is not None:
            changes = await find_changed_files(self._before)
            for file in changes.files:
                _add(seen, file, is_own=is_own)
            seen.notes = tuple(dict.fromkeys((*seen.notes, *changes.notes)))
            seen.commit = (changes.commit if is_own else None) or seen.commit
        seen.is_verifying = is_own and goes_on
        self._write_files()
        if self._before is not None:
            self._before.close()
            self._before = None
        if goes_on and self._watches:
            await self._begin()

    def _read_files(self) -> _SeenFiles:
        """Return the files that changed before the process ended."""
        with suppress(OSError, msgspec.MsgspecError):
            if self._folder is not None:
                return msgspec.json.decode((self._folder / _FILES).read_bytes(), type=_SeenFiles)
        return _SeenFiles()

    def _write_files(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / _FILES).write_bytes(msgspec.json.encode(self._seen))

    def hear(self, event: Event) -> None:
        """Keep the exit status of a command, and the commands of a run in another process."""
        if isinstance(event, ToolStarted) and self._is_elsewhere and event.name in _SHELL:
            self._keep(event.call_id, CommandResult(self._shorten(event.arguments), None, None))
        elif isinstance(event, ToolFinished) and event.result.tool_call_id in self._began:
            call_id = event.result.tool_call_id
            text = "\n".join(block.text for block in event.result.content if isinstance(block, TextContent))
            code = read_exit_code(text, is_error=event.result.is_error)
            self._keep(call_id, CommandResult(self._commands[self._began[call_id]].command, code, event.duration_ms))
            del self._began[call_id]

    def _shorten(self, arguments: Mapping[str, Any]) -> str:
        command = str(arguments.get("command", ""))[:MAX_KEPT_CHARS]
        redact = None if self._setup is None else self._setup.redact
        return command if redact is None else str(redact(command))

    def _keep(self, call_id: str, result: CommandResult) -> None:
        index = self._began.setdefault(call_id, len(self._commands))
        self._commands[index:] = [result, *self._commands[index + 1 :]]
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(self._folder / _FILE, "ab") as file:
                    file.write(msgspec.json.encode((index, result)) + b"\n")

    def _read_commands(self) -> list[CommandResult]:
        """Return the commands that were run before the process ended."""
        if self._folder is None:
            return []
        try:
            lines = (self._folder / _FILE).read_bytes().splitlines()
            kept = dict(msgspec.json.decode(line, type=tuple[int, CommandResult]) for line in lines)
        except (OSError, msgspec.MsgspecError):
            return []
        return [kept[index] for index in sorted(kept)]

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """Run the commands: return what failed while the run may correct it, then its final outcome."""
        if self.options.all and self._setup is not None:
            await self._count(is_own=True)
            async with self._open_verification(self._setup.run_id):
                await self._verify()
            is_last = self._verification != "failed" or not self._left
            await self._count(is_own=False, goes_on=not is_last)
        if self._verification == "failed" and self._left > 0:
            self._left -= 1
            return self._tell_failure()
        self._receipts = await self._close()
        outcome = self._apply(outcome)
        return self._fail(outcome) if self._verification == "failed" else outcome

    async def leave(self, outcome: Outcome) -> Outcome:
        """Record what the host saw, however the run ended."""
        try:
            if self._receipts is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LEAVE_S):
                        self._receipts = await self._close()
            if self._receipts is None:
                self._receipts = self._collect("Changed files are not known: finding them took too long.")
            return self._apply(outcome)
        finally:
            if self._folder is None or outcome.status is not Status.INTERRUPTED:
                self._discard()

    def _discard(self) -> None:
        if self._before is not None:
            self._before.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _apply(self, outcome: Outcome) -> Outcome:
        receipts = None if self._receipts == Receipts() else self._receipts
        return msgspec.structs.replace(outcome, verification=self._verification, receipts=receipts)

    async def _close(self) -> Receipts:
        await self._count(is_own=not self._seen.is_verifying, goes_on=False)
        return self._collect()

    def _collect(self, *notes: str) -> Receipts:
        seen = self._seen
        why = [f"Not verified by the host: {text}." for text in (*self.options.refused, *self._refusals)]
        return Receipts(
            commands=tuple(self._commands[-MAX_KEPT:]),
            files=tuple(sorted(seen.own.values(), key=lambda file: file.path)),
            verification=self._results,
            verify_files=tuple(sorted(seen.others.keys() - seen.own.keys())),
            commit=seen.commit,
            notes=(*why, *seen.notes, *notes),
        )

    async def _verify(self) -> None:
        """Run the commands until one fails."""
        setup = self._setup
        assert setup is not None
        shell = self._shell or BashTool.build(ToolOptions())
        self._results, self._refusals = (), []
        for command in self.options.all:
            if command not in self.options.commands:
                allowed = await _judge(command, shell, setup)
                if isinstance(allowed, ToolResult):
                    text = " ".join(block.text for block in allowed.content if isinstance(block, TextContent))
                    self._refusals.append(f"{quote(command, 200)} may not be run: {text}")
                    continue
                command = allowed
            timeout_s = self.options.timeout_s
            [result] = await run_commands([command], shell, build_context(setup), timeout_s=timeout_s)
            if result.duration_ms is None:
                self._refusals.append(f"{quote(command, 200)} could not be run: {result.output}")
                continue
            self._results += (result,)
            if not self._results[-1].is_good:
                self._verification = "failed"
                return
        is_whole = len(self._results) == len(self.options.all) and not self.options.refused
        self._verification = "verified" if is_whole else "not verified"

    def _tell_failure(self) -> str:
        failed = self._results[-1]
        shown = failed.output if len(failed.output) <= _SHOWN_CHARS else f"…{failed.output[-_SHOWN_CHARS:]}"
        return (
            f"Your work is not done: `{failed.command}`, which verifies it, failed in your working directory "
            f"({_tell_end(failed)}). The end of its output:\n\n{shown}\n\nCorrect the work, then end again with your "
            "whole answer. The commands are then run again."
        )

    def _fail(self, outcome: Outcome) -> Outcome:
        failed = self._results[-1]
        end = failed.output[-_ERROR_CHARS:].strip()
        error = f"[{VERIFICATION_FAILED}] `{failed.command}`, which verifies the result, failed ({_tell_end(failed)}, "
        error += f"after {MAX_CORRECTIONS - self._left} corrections). The end of its output:\n{end}"
        change: dict[str, Any] = {"error": error, "finalized": None, "structured": None}
        return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.VERIFICATION_FAILED, **change)


def _add(seen: _SeenFiles, file: FileReceipt, *, is_own: bool) -> None:
    """Add a file that has changed to those that changed earlier."""
    known = seen.own.pop(file.path, None)
    if not is_own:
        if known is None:
            seen.others[file.path] = file
        else:
            seen.own[file.path] = msgspec.structs.replace(known, sha256=file.sha256)
    elif known is None:
        seen.own[file.path] = file
    elif (known.change, file.change) != ("created", "deleted"):
        change = "created" if known.change == "created" else "changed" if known.change == "deleted" else file.change
        seen.own[file.path] = msgspec.structs.replace(file, change=change)


async def _judge(command: str, shell: Tool, setup: RunSetup) -> str | ToolResult:
    """Ask the hooks of a run about a command that a model named; return the command to run, or why it is refused."""
    arguments: Mapping[str, Any] = {"command": command}
    call = ToolCall(f"verify_{time.monotonic_ns()}", "bash", dict(arguments))
    answer = await ask_hooks(call, shell, setup.hooks)
    if isinstance(answer, ToolResult):
        return answer
    return str(answer.arguments.get("command", command)) if isinstance(answer, Amendment) else command


def _tell_end(result: CommandResult) -> str:
    return "it did not end by itself" if result.exit_code is None else f"exit status {result.exit_code}"
