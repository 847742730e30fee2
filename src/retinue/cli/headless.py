"""`retinue -p`: headless runs. Answers go to standard output, everything else to standard error.

Signals end the run cleanly and keep the session intact: SIGINT 130, SIGTERM 143, SIGHUP 129, a closed pipe silently.
"""

import asyncio
import gc
import os
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

from retinue.app import Request, Retinue, SessionWish
from retinue.cli.options import Options
from retinue.cli.prompts import collect_prompts, to_request
from retinue.cli.trust import ask_trust
from retinue.cli.voice import say, write_stderr
from retinue.core.errors import UsageError
from retinue.core.events import Event, RetryScheduled, RunPaused, Warned
from retinue.core.figures import format_limit
from retinue.core.messages import TextContent, UserContent
from retinue.core.run import Outcome, Reason, Status
from retinue.core.terminal import escape_text
from retinue.serve.outlet import Outlet

if TYPE_CHECKING:
    from retinue.serve.progress import Progress

DRAIN_S = 0.5
LIMIT_STATUS = 75
"""Exit status of a run that a usage limit has ended and that can be resumed."""
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def run_headless(options: Options) -> int:
    """Run the prompts one after the other, or start the RPC server or the UI; returns the exit status."""
    if options.resume and not _has_screen(options):
        raise UsageError(
            "--resume shows a list in the terminal UI, so it needs a terminal and no -p or --mode; "
            "use --continue for the newest session, or --session ID (retinue sessions lists them)"
        )
    if options.detach:
        from retinue.cli.detach import run_detached

        return run_detached(options)
    if options.mode == "rpc":
        from retinue.cli.line_server import run_rpc

        return run_rpc(options)
    # RETINUE_SERVED: a session process, whose terminals are windows elsewhere.
    process_id, is_attended = os.environ.pop("RETINUE_SERVED", ""), sys.stdin.isatty()
    if not options.print and options.mode == "text" and (process_id or is_attended):
        if process_id or sys.stdout.isatty():
            from retinue.cli.screen import run_screen

            return run_screen(options, process_id)
        if not (options.prompts or options.files):
            raise UsageError(
                'no prompt given; for example: retinue -p "What does this project do?" (see retinue --help)'
            )
    prompts = collect_prompts(options)
    if options.mode == "text":
        ask_trust(options)
    return run_until_done(_Prompts(options, prompts))


def _has_screen(options: Options) -> bool:
    is_terminal = bool(os.environ.get("RETINUE_SERVED")) or (sys.stdin.isatty() and sys.stdout.isatty())
    return is_terminal and not options.print and options.mode == "text"


def run_until_done(headless: "Headless") -> int:
    """Run until the work is done or a signal arrives; returns the exit status."""
    try:
        status = asyncio.run(headless.run())
    except asyncio.CancelledError:
        status = 0
    # A signal may have arrived during shutdown.
    return headless.ended_by or status


def _name_session(crew: Retinue, wish: SessionWish) -> str:
    """Return the id of a session, or its path if it is where an id is not looked for."""
    is_elsewhere = wish.directory or (wish.kind == "named" and not crew.session_id.startswith(wish.reference))
    return shlex.quote(str(crew.session_file)) if is_elsewhere else crew.session_id


class Headless:
    """Base for commands that run agents without the UI; subclasses implement `_work`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._outlet = Outlet(1, self._reader_gone)
        self._crew: Retinue | None = None
        self._task: asyncio.Task[object] | None = None
        self._progress: Progress | None = None
        self._shown: set[str] = set()
        """Usage limits that the user was told of."""
        self._resumable = ""
        """The session to continue when a usage limit has ended the run."""
        self._waits = True
        """Whether it waits for the end of a usage limit."""
        self.ended_by = 0
        """The exit status of the signal that ended the run; 0 for none."""

    async def run(self) -> int:
        """Open a Retinue and do the work; signals and a closed pipe end it cleanly."""
        self._catch_signals()
        request = self._to_request()
        async with Retinue(request=request, say=self._say) as crew:
            self._crew = crew
            # Everything loaded so far lives until the end, so the garbage collector need not scan it again.
            gc.freeze()
            gc.set_threshold(20_000, 20, 50)
            self._open_frontend(crew)
            status = await self._work(crew)
            self._resumable = _name_session(crew, request.session) if status == LIMIT_STATUS else ""
            if not crew.is_saved:
                say(f"the session could not be saved completely to {crew.session_file}; free some space and try again")
                status = status or 1
        if self._resumable and not self.ended_by:
            # The last line, so that a script finds it.
            write_stderr(f"Resume with: retinue -p --session {self._resumable} --wait\n")
        return self.ended_by or status

    def _to_request(self) -> Request:
        return to_request(self._options)

    async def _work(self, crew: Retinue) -> int:
        raise NotImplementedError

    def _print(self, text: str) -> None:
        """Print an answer: unchanged for a program, escaped for a terminal, which would obey control characters."""
        text = escape_text(text) if sys.stdout.isatty() else text
        self._outlet.write(f"{text}\n".encode(errors="replace"))

    async def _drain(self) -> None:
        """Wait until our output has been read; after a signal, only for a limited time."""
        try:
            async with asyncio.timeout(DRAIN_S if self.ended_by else None):
                await self._outlet.drain()
        except TimeoutError:
            self._leave()

    def _open_frontend(self, crew: Retinue) -> None:
        if self._options.mode == "json":
            from retinue.serve.jsonl import JsonFrontend

            frontend = JsonFrontend(self._outlet.write, crew.describe_life(), crew.run_id)
            frontend.open(crew.header)
            crew.listen(frontend)
        crew.listen(self._show_warning, pieces=False)
        if sys.stderr.isatty():
            self._open_progress(crew)
        elif self._options.mode == "text":
            crew.listen(show_wait, pieces=False)

    def _open_progress(self, crew: Retinue) -> None:
        from retinue.serve.progress import Progress

        columns = os.get_terminal_size(2).columns or 80
        color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        progress = Progress(write_stderr, columns=columns, model=crew.model.ref, color=color)
        self._progress = progress
        self._follow(crew, progress)
        loop = asyncio.get_running_loop()

        def tick() -> None:
            progress.tick()
            loop.call_later(0.12, tick)

        loop.call_later(0.12, tick)

    def _say(self, text: str) -> None:
        """Print a message to the user on a line of its own."""
        if self._progress is not None:
            self._progress.clear()
        say(text)

    def _show_warning(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._say(event.text)
        elif isinstance(event, RunPaused):
            limit = format_limit(event.provider, event.until_ms, time.time_ns() // 1_000_000)
            if limit not in self._shown:
                self._shown.add(limit)
                self._say(f"{limit}; waiting" if self._waits else limit)

    def _follow(self, crew: Retinue, progress: "Progress") -> None:
        """Show the progress of the run on a terminal."""
        crew.listen(lambda event: progress(event) if event.run_id == crew.run_id else progress.tell_subagent(event))

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number, status in _SIGNALS.items():
            loop.add_signal_handler(number, self._end, status)

    def _end(self, status: int) -> None:
        """The first signal ends the run cleanly, a second one at once. Neither loses output that was already shown."""
        if self.ended_by:
            self._leave()
        self.ended_by = status
        if self._crew is None and self._task is not None:
            self._task.cancel()
        elif self._crew is not None and not self._crew.abort():
            # Idle: we can only be waiting for the reader of our output.
            asyncio.get_running_loop().call_later(DRAIN_S, self._leave)

    def _leave(self) -> None:
        os._exit(self.ended_by)

    def _reader_gone(self) -> None:
        if self._crew is not None:
            self._crew.abort()


class _Prompts(Headless):
    def __init__(self, options: Options, prompts: list[list[UserContent]]) -> None:
        super().__init__(options)
        self._prompts = prompts
        self._waits = options.wait

    async def _work(self, crew: Retinue) -> int:
        outcome, waits = None, self._waits
        if not self._prompts:
            if not crew.is_interrupted:
                raise UsageError("this session has no interrupted work to continue; give a prompt")
            outcome = await crew.go_on(wait=waits)
        for blocks in self._prompts:
            if self.ended_by or self._outlet.is_closed:
                break
            if (command := _find_command(crew, blocks)) is not None:
                await self._run_command(crew, *command)
                continue
            outcome = await crew.prompt(_expand(crew, blocks), settle=True, wait=waits)
            if outcome.status is not Status.COMPLETED:
                break
        status = self._report(outcome) if outcome is not None else 0
        await self._drain()
        return status

    async def _run_command(self, crew: Retinue, name: str, words: str) -> None:
        """Run a slash command and show its output; the main agent does not see it."""
        if name == "toolkit" and (reason := self._find_objection(words)):
            say(reason)
            return
        shown = await crew.commands.run(name, words)
        if shown and self._options.mode == "text":
            self._print(shown.rstrip())
        elif shown:
            say(shown)  # standard output is reserved for the agent's events

    def _find_objection(self, words: str) -> str:
        """Why a `/toolkit` report cannot be shown in this mode; empty if it can."""
        if self._options.mode != "text":
            return f"/toolkit prints text and does not work with --mode {self._options.mode}; omit --mode"
        if words.lower().split()[:1] == ["activity"]:
            return "/toolkit activity needs the terminal UI; /toolkit logs prints the same"
        return ""

    def _report(self, outcome: Outcome) -> int:
        """Print the answer or the error; returns the exit status."""
        if self._options.mode == "text" and outcome.text and outcome.status is Status.COMPLETED:
            self._print(outcome.text)
        if outcome.status is Status.COMPLETED:
            if outcome.reason is Reason.LENGTH:
                say("the answer was cut off by the model's output limit")
            return 0
        if outcome.reason is Reason.LIMIT and not self.ended_by:
            if self._crew is not None and self._crew.session_file is not None:
                say(f"{outcome.error}; the session is saved")
                return LIMIT_STATUS
            say(f"{outcome.error}; nothing can be resumed without a session: use --wait, or omit --no-session")
            return 1
        stopped = f"stopped: {outcome.reason.replace('_', ' ')}"
        if outcome.reason in (Reason.WALL_TIMEOUT, Reason.IDLE_TIMEOUT):
            say(stopped)
            return 124
        if outcome.text and self._options.mode == "text" and not self._outlet.is_closed:
            say(f"unfinished answer:\n{outcome.text}")
        if not self.ended_by and not self._outlet.is_closed:
            say(outcome.error or stopped)
        return 1


def _expand(crew: Retinue, blocks: list[UserContent]) -> list[UserContent]:
    """Replace `/name args` of a prompt template and `/skill:name` by their texts."""
    first = blocks[0]
    if not isinstance(first, TextContent) or not first.text.startswith("/"):
        return blocks
    return [TextContent(crew.catalogue.expand(first.text)), *blocks[1:]]


def _find_command(crew: Retinue, blocks: list[UserContent]) -> tuple[str, str] | None:
    """The known slash command in a prompt and its arguments; None for any other prompt."""
    first = blocks[0]
    if len(blocks) > 1 or not isinstance(first, TextContent) or not first.text.startswith("/"):
        return None
    name, _, words = first.text[1:].partition(" ")
    return (name.strip(), words.strip()) if crew.commands.has(name.strip()) else None


def show_wait(event: Event) -> None:
    """Print the pause before a retry."""
    if isinstance(event, RetryScheduled):
        pause = f"{event.delay_ms / 1000:.1f} s ({event.attempt} of {event.max_attempts})"
        say(f"{event.error}; retrying in {pause}")
