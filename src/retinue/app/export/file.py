"""An export as a file: private, whole, and never over something that was not named."""

import os
from pathlib import Path

from retinue.app.export.page import render_page
from retinue.app.story import read_story
from retinue.core.errors import UsageError, quote


def export_session(session_file: str | Path, target: Path, *, is_asked: bool) -> None:
    """Write a session as a page; a file that is there is replaced only when it was asked for by name.

    Raises SessionError or UsageError.
    """
    page = render_page(read_story(session_file)).encode("utf-8", "replace")
    try:
        if is_asked:
            target.unlink(missing_ok=True)
        with open(target, "xb", opener=_open_private) as file:
            file.write(page)
    except FileExistsError:
        raise UsageError(f"{quote(str(target), 200)} exists already; name the file to replace it") from None
    except OSError as error:
        raise UsageError(f"{quote(str(target), 200)} cannot be written: {error.strerror}") from None


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)
