"""The prompts of a headless run: standard input, `@file` arguments and words, put together as pi does.

Everything is read with a bound, nothing can hang, and each mistake is one clear sentence.
"""

import base64
import os
import select
import stat
import sys
from pathlib import Path

from retinue.cli.options import Options
from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent, UserContent

MAX_PROMPT_BYTES = 4 * 1024 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024
STDIN_WAIT_S = 3.0
"""How long an open pipe that says nothing is listened to when there is a prompt without it."""

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}


def collect_prompts(options: Options) -> list[list[UserContent]]:
    """One list of content blocks per prompt; the first one carries standard input and files."""
    piped = read_stdin(wait_s=STDIN_WAIT_S if options.prompts or options.files else None)
    texts, images = list[str](), list[ImageContent]()
    for name in options.files:
        text, image = _read_file(name)
        texts.append(text)
        if image is not None:
            images.append(image)
    words = list(options.prompts) or [""]
    for word in words:
        check_text(word, "the prompt")
    first = f"{piped.strip()}{''.join(texts)}{words[0]}"
    if not first.strip() and not images:
        raise UsageError('the prompt is empty; say something, as in: retinue -p "What does this project do?"')
    if len(first.encode(errors="replace")) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"the prompt has {len(first) / 1e6:.1f} MB and the limit is {MAX_PROMPT_BYTES // 2**20} MiB; "
            "save the text to a file and name its path in the prompt, so that the agent can read it in parts"
        )
    blocks: list[UserContent] = [TextContent(first), *images]
    rest: list[list[UserContent]] = [[TextContent(word)] for word in words[1:] if word.strip()]
    return [blocks, *rest]


def read_stdin(wait_s: float | None) -> str:
    """What is piped in; empty for a terminal, a closed descriptor, or a pipe that stays silent."""
    try:
        mode = os.fstat(0).st_mode
        if os.isatty(0) or stat.S_ISCHR(mode):
            return ""
    except OSError:
        return ""
    if wait_s is not None and not stat.S_ISREG(mode) and not select.select((0,), (), (), wait_s)[0]:
        sys.stderr.write("retinue: standard input is open but silent; going on without it\n")
        return ""
    data = bytearray()
    while len(data) <= MAX_PROMPT_BYTES:
        try:
            piece = os.read(0, 1 << 16)
        except OSError as error:
            raise UsageError(f"cannot read standard input: {error.strerror}") from error
        if not piece:
            return _decode(bytes(data), "standard input")
        data += piece
    raise UsageError(
        f"standard input is longer than {MAX_PROMPT_BYTES // 2**20} MiB; "
        "save it to a file and name its path in the prompt, so that the agent can read it in parts"
    )


def _read_file(name: str) -> tuple[str, ImageContent | None]:
    path = Path(os.path.expanduser(name)).absolute()
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
        data = file.read(max(MAX_PROMPT_BYTES, MAX_IMAGE_BYTES) + 1)
    kind = _image_kind(data)
    if kind:
        if len(data) > MAX_IMAGE_BYTES:
            raise UsageError(f"@{quote(name)} has more than {MAX_IMAGE_BYTES // 2**20} MiB; make the image smaller")
        return f'<file name="{path}"></file>\n', ImageContent(base64.b64encode(data).decode(), kind)
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"@{quote(name)} has more than {MAX_PROMPT_BYTES // 2**20} MiB; name its path without the @, "
            "so that the agent can read it in parts"
        )
    return f'<file name="{path}">\n{_decode(data, "@" + quote(name))}\n</file>\n', None


def _image_kind(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


def _decode(data: bytes, where: str) -> str:
    if b"\0" in data:
        raise UsageError(f"{where} is binary (byte {data.index(0)} is zero); only text and images can be sent")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})") from error


def check_text(text: str, where: str) -> None:
    """Raise UsageError for an argument that was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (character {error.start})") from error
