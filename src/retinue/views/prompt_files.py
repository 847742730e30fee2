"""Files attached to a prompt: reads them with size limits and finds `@` mentions."""

import base64
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent, UserContent
from retinue.core.pattern import late_pattern

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
    """Return the text that represents a file in a prompt, and the image if the file is one. Raises UsageError."""
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
    """Raises UsageError when the image is too large."""
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(f"@{quote(name)} has more than {MAX_IMAGE_BYTES // 2**20} MiB; make the image smaller")
    return ImageContent(base64.b64encode(data).decode(), kind)


def read_regular(path: Path, name: str, limit: int) -> bytes:
    """Read at most `limit` + 1 bytes of a regular file. Raises UsageError for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read @{quote(name)}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"@{quote(name)} is not a file name") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"@{quote(name)} is not a regular file")
    with open(fd, "rb") as file:
        return file.read(limit + 1)


def find_image_kind(data: bytes) -> str:
    """The MIME type of an image; empty if the data is not an image."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


def decode_text(data: bytes, where: str) -> str:
    """Decode UTF-8 text. Raises UsageError if it is binary or not UTF-8."""
    if b"\0" in data:
        raise UsageError(f"{where} is binary (byte {data.index(0)} is zero); only text and images can be sent")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})") from error


AGENT_PREFIX = "agent-"
"""`@agent-Explore`, as users of Claude Code write it."""
MOST_IMAGES = 20
_MENTION = late_pattern(r'(?:^|(?<=\s)|(?<=[(\[,]))@(?:"([^"\n]+)"|([^\s"]+))')
_IMAGE_NAME = late_pattern(r"\.(?:png|jpe?g|gif|webp|bmp)$", re.IGNORECASE)
_CLOSING = ".,;:!?)]}'"


def list_mentions(text: str) -> list[str]:
    """All names after an `@`, in order, without duplicates; quoted names may contain spaces."""
    found = (quoted or plain for quoted, plain in _MENTION.findall(text))
    return list(dict.fromkeys(found))


def render_mention(name: str) -> str:
    """Write a name as a mention that `list_mentions` finds; empty if that is impossible."""
    if '"' in name or "\n" in name:
        return ""
    is_plain = not re.search(r"\s", name) and name[-1:] not in _CLOSING
    return f"@{name}" if is_plain else f'@"{name}"'


def compose_prompt(text: str, agents: Iterable[str], cwd: Path) -> tuple[list[UserContent], list[str]]:
    """Return the prompt with a line for each mentioned agent, the mentioned images, and problems. Reads files."""
    names = list_mentions(text)
    images, problems = _read_images(names, cwd)
    notes = [note for note in _note_agents(names, agents, cwd) if note not in text]
    words = "\n\n".join([text, *notes])
    return [TextContent(words), *images], problems


def is_image(path: str) -> bool:
    """Whether a file is an image, judged by its content."""
    try:
        return bool(find_image_kind(read_regular(Path(os.path.expanduser(path)), path, 64)))
    except (UsageError, OSError):
        return False


def _read_images(names: Sequence[str], cwd: Path) -> tuple[list[ImageContent], list[str]]:
    images: list[ImageContent] = []
    problems: list[str] = []
    for name in names:
        path = next((each for each in _spell(name) if _IMAGE_NAME.search(each)), None)
        if path is None:
            continue
        try:
            data = read_regular(cwd / os.path.expanduser(path), path, MAX_IMAGE_BYTES)
            kind = find_image_kind(data)
            if kind and len(images) == MOST_IMAGES:
                raise UsageError(f"only the first {MOST_IMAGES} images are sent")
            images += [to_image(data, kind, path)] if kind else []
        except (UsageError, OSError) as error:
            problems.append(str(error))
    return images, list(dict.fromkeys(problems))


def _note_agents(names: Sequence[str], agents: Iterable[str], cwd: Path) -> list[str]:
    known = {agent.lower(): agent for agent in agents}
    wanted: dict[str, None] = {}
    for name in names:
        for each in _spell(name):
            if each.lower().startswith(AGENT_PREFIX) and each[len(AGENT_PREFIX) :].lower() in known:
                wanted[known[each[len(AGENT_PREFIX) :].lower()]] = None
                break
            if each.lower() in known and not os.path.lexists(cwd / each):
                wanted[known[each.lower()]] = None
                break
    return [f'(The user asks for the agent "{agent}": delegate to it.)' for agent in wanted]


def _spell(name: str) -> list[str]:
    """The name as written, and without the punctuation that follows it in the sentence."""
    bare = name.rstrip(_CLOSING)
    return [name] if bare == name or not bare else [name, bare]
