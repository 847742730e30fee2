"""`retinue` on a terminal: starts the terminal UI."""

import gc

from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import say
from retinue.core.messages import UserContent


def run_screen(options: Options) -> int:
    from retinue.ui.terminal_restore import end_at_once

    end_at_once()
    gc.disable()  # until everything is loaded: none of it is garbage
    from retinue.ui.app import RetinueApp

    first: list[str] | list[list[UserContent]] = options.prompts
    if options.files:
        from retinue.cli.prompts import collect_prompts

        first = collect_prompts(options)
    app = RetinueApp(to_request(options), first_words=first, is_resumed=options.resume)
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
