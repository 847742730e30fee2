"""Writing in the user's own editor: the terminal is handed over, the agents go on working behind it."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from retinue.core.errors import RetinueError, UsageError, quote

if TYPE_CHECKING:
    from textual.app import App


def choose_editor(environment: Mapping[str, str]) -> list[str]:
    """`$VISUAL`, else `$EDITOR`, else nano, with their arguments. Raises UsageError."""
    for name in ("VISUAL", "EDITOR"):
        if value := environment.get(name, "").strip():
            try:
                return shlex.split(value)
            except ValueError as error:
                raise UsageError(f"{name} is {quote(value)}, which cannot be understood: {error}") from None
    return ["nano"]


async def edit_text(app: "App[int]", text: str) -> str:
    """The text as the user leaves it. Raises RetinueError when there is no editor, or no terminal to hand over."""
    command = choose_editor(os.environ)
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        path = Path(folder) / "prompt.md"
        path.write_text(text, encoding="utf-8")
        try:
            # What changes meanwhile is drawn when the terminal is ours again.
            with app.suspend(), app.batch_update():
                status = await run_editor(command, path)
        except SuspendNotSupported:
            raise RetinueError("this terminal cannot be handed over to another program") from None
        if status:
            raise RetinueError(f"{quote(command[0])} ended with status {status}; nothing is changed")
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")


async def run_editor(command: list[str], path: Path) -> int:
    """Run an editor until it is closed; returns its exit status. Raises RetinueError when it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(*command, str(path))
    except OSError as error:
        what = f"the editor {quote(command[0])} cannot be started: {error.strerror}"
        raise RetinueError(f"{what}; set VISUAL or EDITOR to one that is there") from None
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
