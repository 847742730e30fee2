"""Writing a prompt in the user's own editor."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError, UsageError
from retinue.ui.editor_program import edit_file, find_editor

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

FALLBACK = "nano"
"""The program for those who have named none."""


async def edit_text(app: "RetinueApp", text: str) -> str:
    """The text as the user leaves it. Raises RetinueError when there is no editor, or no terminal to hand over."""
    fallback = FALLBACK if shutil.which(FALLBACK) else ""
    if not find_editor(app.external_editor) and not fallback:
        raise UsageError("set VISUAL or EDITOR to the program you like to write with")
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        path = Path(folder) / "prompt.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        if not await edit_file(app, path, fallback=fallback):
            raise RetinueError("this terminal cannot be handed over to another program")
        try:
            return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
        except OSError as error:
            raise RetinueError(f"what was written cannot be read: {(error.strerror or 'no file').lower()}") from None
