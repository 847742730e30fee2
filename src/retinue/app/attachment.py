"""Files that go along with a prompt: read with a bound, never hanging, each mistake one clear sentence.

Shared by all faces; knows nothing of how a file was named to it.
"""

import base64
import os
import stat
from pathlib import Path

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent

MAX_PROMPT_BYTES = 4 * 1024 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}


def read_attachment(name: str) -> tuple[str, ImageContent | None]:
    """What a prompt says about a file, and the file itself when it is an image. Raises UsageError."""
    path = Path(os.path.expanduser(name)).absolute()
    data = read_regular(path, name, max(MAX_PROMPT_BYTES, MAX_IMAGE_BYTES))
    kind = find_image_kind(data)
    if kind:
        return f'<file name="{path}"></file>\n', to_image(data, kind, name)
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"@{quote(name)} has more than {MAX_PROMPT_BYTES // 2**20} MiB; name its path without the @, "
            "so that the agent can read it in parts"
        )
    return f'<file name="{path}">\n{decode_text(data, "@" + quote(name))}\n</file>\n', None


def to_image(data: bytes, kind: str, name: str) -> ImageContent:
    """An image as a model gets it. Raises UsageError when it is too large."""
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(f"@{quote(name)} has more than {MAX_IMAGE_BYTES // 2**20} MiB; make the image smaller")
    return ImageContent(base64.b64encode(data).decode(), kind)


def read_regular(path: Path, name: str, limit: int) -> bytes:
    """Up to one byte more than the limit of a regular file. Raises UsageError for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read @{quote(name)}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"@{quote(name)} is no file name") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"@{quote(name)} is not a regular file")
    with open(fd, "rb") as file:
        return file.read(limit + 1)


def find_image_kind(data: bytes) -> str:
    """The mime type of an image; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


def decode_text(data: bytes, where: str) -> str:
    """Text that somebody gave us. Raises UsageError for anything that is no UTF-8."""
    if b"\0" in data:
        raise UsageError(f"{where} is binary (byte {data.index(0)} is zero); only text and images can be sent")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})") from error
