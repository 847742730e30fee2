"""Runs the user's external editor on a file or on a prompt."""

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from retinue.core.errors import RetinueError, UsageError, quote

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


def find_editor(wished: str = "") -> list[str]:
    """The configured command, or `$VISUAL` or `$EDITOR`; empty if none is set. Raises UsageError."""
    names = {"externalEditor": wished, "VISUAL": os.environ.get("VISUAL", ""), "EDITOR": os.environ.get("EDITOR", "")}
    name, words = next(((name, words.strip()) for name, words in names.items() if words.strip()), ("", ""))
    try:
        return shlex.split(words)
    except ValueError:
        raise UsageError(f"{name} cannot be read as a command: {quote(words)}") from None


async def edit_file(app: "RetinueApp", path: str | Path, *, fallback: str = "") -> bool:
    """Open a file in the user's editor; False if none can be used here. Raises UsageError."""
    command = find_editor(app.kept.external_editor) or shlex.split(fallback)
    if not command:
        return False
    try:
        # Nothing may be painted over the editor, but agents continue to work.
        with app.suspend(), app.batch_update():
            # `_run` must not raise, because the terminal has to be restored afterwards.
            status = await asyncio.to_thread(_run, [*command, str(path)])
    except SuspendNotSupported:
        return False
    if status:
        raise UsageError(f"{quote(command[0])}: {status}; set EDITOR to an installed editor")
    return True


def _run(words: list[str]) -> str:
    """Run a program and return what went wrong; empty on success. MUST NOT raise."""
    try:
        status = subprocess.run(words, check=False).returncode
    except OSError as error:
        return (error.strerror or "cannot be started").lower()
    return f"ended with exit status {status}" if status else ""


FALLBACK = "nano"
"""The editor to use if the user has set none."""


async def edit_text(app: "RetinueApp", text: str) -> str:
    """Edit a text in the user's editor. Raises RetinueError if there is none or the UI cannot be suspended."""
    fallback = FALLBACK if shutil.which(FALLBACK) else ""
    if not find_editor(app.kept.external_editor) and not fallback:
        raise UsageError("no editor is configured; set VISUAL or EDITOR")
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        path = Path(folder) / "prompt.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        if not await edit_file(app, path, fallback=fallback):
            raise RetinueError("an external editor cannot run in this terminal")
        try:
            return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
        except OSError as error:
            raise RetinueError(f"the edited text cannot be read: {(error.strerror or 'no file').lower()}") from None
