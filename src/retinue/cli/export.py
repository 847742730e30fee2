"""`retinue export SESSION`: one self-contained HTML file of a session with all its runs."""

import sys
from pathlib import Path

from retinue.cli.options import Options
from retinue.cli.requests import to_request
from retinue.cli.voice import say
from retinue.core.errors import UsageError, quote
from retinue.core.terminal import escape_text


def run_export(options: Options) -> int:
    """Write the file; its path goes to standard output, or the page itself with `-o -`."""
    from retinue.app.story import find_session_file, read_story
    from retinue.serve.export.page import render_page

    if len(options.words) > 1:
        raise UsageError("say which session, by its id, the beginning of it, or its path: retinue export ID")
    path = find_session_file(options.words[0] if options.words else "", to_request(options))
    page = render_page(read_story(path)).encode("utf-8", "replace")
    if options.output == "-":
        sys.stdout.buffer.write(page)
        return 0
    target = Path(options.output or f"{Path(path).stem}.html")
    save_page(target, page, is_asked=bool(options.output))
    sys.stdout.write(f"{escape_text(str(target))}\n")
    return 0


def save_page(target: Path, page: bytes, *, is_asked: bool) -> None:
    """Write a page that only the user can read; a file that is there is replaced only when it was named."""
    try:
        if is_asked:
            target.unlink(missing_ok=True)
        with open(target, "xb", opener=lambda name, flags: _open_private(name, flags)) as file:
            file.write(page)
    except FileExistsError:
        raise UsageError(f"{quote(str(target), 200)} exists already; name a file with -o") from None
    except OSError as error:
        raise UsageError(f"{quote(str(target), 200)} cannot be written: {error.strerror}") from None
    if not page.strip():
        say("the page is empty")


def _open_private(name: str, flags: int) -> int:
    import os

    return os.open(name, flags | os.O_NOFOLLOW, 0o600)
