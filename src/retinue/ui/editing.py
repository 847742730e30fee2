"""The user's own editor on a file, while the terminal is given to it."""

import asyncio
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from retinue.core.errors import UsageError, quote

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


def find_editor() -> list[str]:
    """The command of `$VISUAL` or `$EDITOR`; empty when neither is set. Raises UsageError."""
    words = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    try:
        return shlex.split(words)
    except ValueError:
        raise UsageError(f"VISUAL or EDITOR cannot be read as a command: {quote(words)}") from None


async def edit_file(app: "RetinueApp", path: str | Path) -> bool:
    """Let the user's editor change a file; False when there is none that can be used here. Raises UsageError."""
    command = find_editor()
    if not command:
        return False
    try:
        # Nothing may be painted over the editor meanwhile, but agents go on working.
        with app.suspend(), app.batch_update():
            done = await asyncio.to_thread(subprocess.run, [*command, str(path)], check=False)
    except SuspendNotSupported:
        return False
    except OSError as error:
        reason = (error.strerror or "cannot be started").lower()
        raise UsageError(f"{quote(command[0])}: {reason}; set EDITOR to a program that is there") from None
    if done.returncode:
        raise UsageError(f"{quote(command[0])} ended with exit status {done.returncode}")
    return True
