"""`retinue rewind` and `retinue undo`: bring files and conversation back, or undo what one agent changed."""

import asyncio
import os
import sys
from collections.abc import Collection, Iterable
from contextlib import ExitStack

from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import say
from retinue.core.errors import UsageError, quote
from retinue.core.terminal import escape_line


def run_rewind(options: Options) -> int:
    """Rewind a session to before one of its prompts, list them, or take the last rewind back."""
    from retinue.views.report import find_session_file
    from retinue.views.rewind import (
        Move,
        branch_session,
        find_point,
        list_points,
        open_session,
        open_store,
        rewind,
        undo_rewind,
    )

    if options.to and not (options.to.isascii() and options.to.isdigit()):
        raise UsageError(f"--to must be the number of a prompt, not {quote(options.to)}; --list shows them")
    request = to_request(options)
    with ExitStack() as stack:

        def open_move(session_id: str) -> Move:
            session = open_session(find_session_file(session_id, request), stack)
            return branch_session(session)

        if options.undo:
            if options.words or options.to or options.files_only or options.conversation:
                raise UsageError("--undo takes back the last rewind of this folder; use it alone")
            title, paths, problems = asyncio.run(undo_rewind(open_store(os.getcwd()), open_move))
            _print_paths(f"Took back {title}: ", paths)
            return _tell([f"not restored: {problem}" for problem in problems])
        path = find_session_file(options.words[0] if options.words else "", request)
        both = options.files_only == options.conversation
        moves = (both or options.conversation) and not options.list
        session = open_session(path, stack, read_only=not moves)
        store = open_store(session.cwd)
        points = list_points(session, store)
        if options.list:
            for each in points:
                mark = "" if each.checkpoint is not None else "  (conversation only)"
                sys.stdout.write(f"{each.number:>3}  {each.when}  {escape_line(each.text, 80)}{mark}\n")
            return 0
        point = find_point(points, int(options.to) if options.to else None)
        move = branch_session(session) if moves else None
        done = asyncio.run(rewind(session, store, point, move, files=both or options.files_only))
        _print_paths(f"Rewound to before prompt {point.number}: ", done.paths)
        sys.stdout.write(f"The prompt was: {escape_line(point.text, 200)}\n" if moves else "")
        _tell(done.notes)
        say("to take this back: retinue rewind --undo")
        return 0


def run_undo(options: Options) -> int:
    """Take out what one run changed."""
    from retinue.views.rewind import Side, open_store, undo_run

    if not options.words:
        raise UsageError("undo needs the id of a run, or its beginning: retinue undo RUN")
    prefer: Side | None = "ours" if options.ours else "theirs" if options.theirs else None
    store = open_store(os.getcwd())
    report = asyncio.run(undo_run(store, options.words[0], prefer=prefer, dry_run=options.dry_run))
    name = f"{report.agent} {report.run}".strip()
    if report.conflicts:
        for path, why in report.conflicts.items():
            sys.stdout.write(f"{escape_line(path, 300)}: {escape_line(why, 300)}\n")
        say(
            f"nothing was changed: what {name} changed conflicts in {_count(report.conflicts)}. --ours keeps what is "
            "there now in these places, --theirs restores what was there before the run"
        )
        return 1
    _print_paths(f"{'Would undo' if options.dry_run else 'Undid'} what {name} changed: ", report.paths)
    _tell(report.notes)
    if report.paths and not options.dry_run:
        say("to take this back: retinue rewind --undo")
    return 0


def _print_paths(title: str, paths: list[str]) -> None:
    sys.stdout.write(f"{title}{_count(paths)}\n" + "".join(f"  {escape_line(path, 300)}\n" for path in paths))


def _count(paths: Collection[str]) -> str:
    return f"{len(paths)} file{'' if len(paths) == 1 else 's'}" if paths else "no files"


def _tell(notes: Iterable[str]) -> int:
    for note in notes:
        say(note)
    return 1 if any(note.startswith("not restored: ") for note in notes) else 0
