"""Reads the system clipboard; images are stored as temporary files while the program runs. Blocking."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retinue.views.prompt_files import MAX_IMAGE_BYTES, find_image_kind

WAIT_LIMIT_S = 3.0
"""Seconds that a clipboard program may take."""
_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp")
_TEXTS = ("text/plain;charset=utf-8", "UTF8_STRING", "text/plain", "STRING", "TEXT")
_REMEDY = "drop the image file on this window, or mention it with @"


@dataclass(frozen=True, slots=True)
class Copied:
    """The content of the clipboard; exactly one field is set."""

    path: str = ""
    """The path of a file with the image."""
    text: str = ""
    problem: str = ""
    """Why nothing could be read."""


class Clipboard:
    """Reads the clipboard with the program that this desktop has for it."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    def read(self) -> Copied:
        """MUST NOT raise."""
        way = _find_way()
        if isinstance(way, str):
            return Copied(problem=way)
        listing, reading = way
        offered = set(_run(listing).decode(errors="replace").split("\n")) if listing else {"image/png", "text/plain"}
        for kind in (kind for kind in _KINDS if kind in offered):
            data = _decode_mac(_run([*reading, kind])) if sys.platform == "darwin" else _run([*reading, kind])
            if len(data) > MAX_IMAGE_BYTES:
                return Copied(problem=f"the copied image is larger than {MAX_IMAGE_BYTES // 2**20} MiB")
            if find_image_kind(data):
                return self._keep(data)
        for kind in (kind for kind in _TEXTS if kind in offered):
            text = _run(["pbpaste"] if sys.platform == "darwin" else [*reading, kind]).decode(errors="replace")
            if text:
                return Copied(text=text)
        return Copied(problem="the clipboard has no image or text")

    def close(self) -> None:
        """Delete the temporary files."""
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    def _keep(self, data: bytes) -> Copied:
        try:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="retinue-")  # readable by the user only
            self._count += 1
            suffix = find_image_kind(data).removeprefix("image/")
            path = Path(self._folder.name) / f"clipboard-{self._count}.{suffix}"
            path.write_bytes(data)
        except OSError as error:
            return Copied(problem=f"the copied image cannot be stored: {(error.strerror or 'no room').lower()}")
        return Copied(path=str(path))


def _find_way() -> tuple[Sequence[str], Sequence[str]] | str:
    """The commands that list the available types and read one type; a string says why there are none."""
    if sys.platform == "darwin":
        return (), ["osascript", "-e", "get the clipboard as «class PNGf»"]
    if os.environ.get("WAYLAND_DISPLAY") and shutil.which("wl-paste"):
        return ["wl-paste", "--list-types"], ["wl-paste", "--no-newline", "--type"]
    if os.environ.get("DISPLAY") and shutil.which("xclip"):
        base = ["xclip", "-selection", "clipboard", "-out", "-target"]
        return [*base, "TARGETS"], base
    if os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY"):
        name = "wl-clipboard" if os.environ.get("WAYLAND_DISPLAY") else "xclip"
        return f"the clipboard cannot be read: install {name}, or {_REMEDY}"
    return f"no clipboard is available: {_REMEDY}"


def _run(words: Sequence[str]) -> bytes:
    """The output of a program, up to one byte more than the largest image; empty if it fails."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return b""
    try:
        # No other process has the pipe, so it ends with the process.
        data, _ = process.communicate(timeout=WAIT_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return b""
    return data[: MAX_IMAGE_BYTES + 1] if process.returncode == 0 else b""


def _decode_mac(data: bytes) -> bytes:
    """Decode AppleScript's output `«data PNGf89504E…»`."""
    found = data.decode(errors="replace").partition("PNGf")[2].partition("»")[0]
    try:
        return bytes.fromhex(found)
    except ValueError:
        return b""
