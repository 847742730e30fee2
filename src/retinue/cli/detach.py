"""`retinue --detach PROMPT`: starts a session in the background and prints how to open it."""

import asyncio
import os
import sys

from retinue.cli.options import Options
from retinue.cli.prompts import check_text, collect_prompts
from retinue.cli.trust import ask_trust
from retinue.cli.voice import say
from retinue.core.errors import RetinueError, UsageError
from retinue.core.messages import UserContent
from retinue.views.session_processes import SessionProcesses, make_id


def run_detached(options: Options) -> int:
    """Continue in a process of its own, which has all options without a command line; returns the exit status."""
    is_resumed = bool(options.continue_ or options.session or options.session_id)
    is_empty = not (options.prompts or options.files)
    if is_empty and (sys.stdin.isatty() or is_resumed):
        if not is_resumed:
            raise UsageError(
                '--detach needs a prompt; for example: retinue --detach "Run the tests and fix what fails"'
            )
        first: list[str] | list[list[UserContent]] = []
    else:
        is_plain = sys.stdin.isatty() and not options.files
        first = options.prompts if is_plain else collect_prompts(options)
    for prompt in options.prompts:
        check_text(prompt, "the prompt")
    _decide_trust(options)
    processes, process_id = SessionProcesses(), make_id()
    log = processes.open_log(process_id)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _leave_terminal(log)
        from retinue.cli.screen import run_screen

        return run_screen(options, process_id, first)
    os.close(log)
    status = 0

    def is_running() -> bool:
        nonlocal status
        ended, status = os.waitpid(child, os.WNOHANG)
        return not ended

    try:
        record = asyncio.run(processes.wait_until_open(process_id, is_running))
    except RetinueError as error:
        processes.forget(process_id)
        error.exit_status = os.waitstatus_to_exitcode(status) or 1
        raise
    if record.note:
        say(record.note)
    sys.stdout.write(f"retinue attach {process_id}\n")
    return 0


def _decide_trust(options: Options) -> None:
    """Ask about the folder's configuration now: later nobody may answer. Without a terminal it is not used."""
    ask_trust(options)
    if not (options.approve or options.no_approve):
        from retinue.app import DecidedFolder

        _, trust = DecidedFolder().read(approve=None)
        if not trust.trusted and trust.notice:
            say(trust.notice)
            options.no_approve = True


def _leave_terminal(log: int) -> None:
    """Let go of the terminal and of the pipes of whoever started us."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number, target in enumerate((nowhere, nowhere, log)):
        os.dup2(target, number)
    os.close(nowhere)
    os.close(log)
