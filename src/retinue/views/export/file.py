"""An export as a file: private, whole, and never over something that was not named."""

import os
from pathlib import Path

from retinue.core.errors import UsageError, quote
from retinue.core.redaction import Redactor, collect_secrets
from retinue.settings.paths import find_paths
from retinue.settings.providers import load_registry
from retinue.views.export.page import render_page
from retinue.views.report import read_story


def export_session(session_file: str | Path, target: Path, *, is_asked: bool) -> None:
    """Write a session as a page; a file that is there is replaced only when it was asked for by name.

    Raises SessionError or UsageError.
    """
    page = render_export(session_file).encode("utf-8", "replace")
    try:
        if is_asked:
            target.unlink(missing_ok=True)
        with open(target, "xb", opener=_open_private) as file:
            file.write(page)
    except FileExistsError:
        raise UsageError(f"{quote(str(target), 200)} exists already; name the file to replace it") from None
    except OSError as error:
        raise UsageError(f"{quote(str(target), 200)} cannot be written: {error.strerror}") from None


def render_export(session_file: str | Path) -> str:
    """A session as a page, without the keys that this user has now. Raises SessionError."""
    paths = find_paths(".", os.environ)
    registry, _ = load_registry(paths, os.environ, offline=True)
    # It is made to be shown to others: what only looks like a secret is left out as well.
    redactor = Redactor(collect_secrets(os.environ), patterns=True)
    redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
    return redactor.redact(render_page(read_story(session_file)))


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)
