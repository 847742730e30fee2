"""`retinue` on a terminal: starts the terminal UI."""

import gc
import os

from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import say
from retinue.core.messages import UserContent


def run_screen(options: Options, process_id: str = "", first: list[str] | list[list[UserContent]] | None = None) -> int:
    """Run the UI on the terminal, or as the session process with this id; `first` are prompts already collected."""
    from retinue.ui.terminal_restore import end_at_once

    end_at_once()
    if process_id:
        os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # read once, by the import below
    gc.disable()  # until everything is loaded: none of it is garbage
    from retinue.ui.app import RetinueApp

    if process_id:
        del os.environ["TEXTUAL_COLOR_SYSTEM"]
    if first is None:
        first = options.prompts
    if options.files and first is options.prompts:
        from retinue.cli.prompts import collect_prompts

        first = collect_prompts(options)
    windows = None
    if process_id:
        from retinue.ui.windows import SessionWindows
        from retinue.views.session_processes import SessionProcesses

        windows = SessionWindows(SessionProcesses(), process_id)
    app = RetinueApp(to_request(options), first_words=first, is_resumed=options.resume, windows=windows)
    status = app.run()
    if app.crash is not None:
        raise app.crash
    answer, command = app.parting
    if answer:
        print(answer, flush=True)
    if command:
        say(command)
    if app.ended_badly:
        say(app.ended_badly)
    return status or 0
