"""What a user names with `@` in a prompt: images go along with the words, agents are to be delegated to.

Any other file stays a name, which the agent reads itself, as in pi's editor. Knows no face.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from retinue.app.attachment import MAX_IMAGE_BYTES, find_image_kind, read_regular, to_image
from retinue.core.errors import UsageError
from retinue.core.messages import ImageContent, TextContent, UserContent

AGENT_PREFIX = "agent-"
"""`@agent-Explore`, as users of Claude Code write it."""
MOST_IMAGES = 20
_MENTION = re.compile(r'(?:^|(?<=\s)|(?<=[(\[,]))@(?:"([^"\n]+)"|([^\s"]+))')
_IMAGE_NAME = re.compile(r"\.(?:png|jpe?g|gif|webp|bmp)$", re.IGNORECASE)
_CLOSING = ".,;:!?)]}'"


def list_mentions(text: str) -> list[str]:
    """All names after an `@`, in order and once each; quotes may hold blanks."""
    found = (quoted or plain for quoted, plain in _MENTION.findall(text))
    return list(dict.fromkeys(found))


def render_mention(name: str) -> str:
    """A name so that it is found again; the empty string for one that cannot be written."""
    if '"' in name or "\n" in name:
        return ""
    is_plain = not re.search(r"\s", name) and name[-1:] not in _CLOSING
    return f"@{name}" if is_plain else f'@"{name}"'


def compose_prompt(text: str, agents: Iterable[str], cwd: Path) -> tuple[list[UserContent], list[str]]:
    """The words, a line for each agent they name, and the images; and what could not go along. Reads files."""
    names = list_mentions(text)
    images, problems = _read_images(names, cwd)
    notes = [note for note in _note_agents(names, agents, cwd) if note not in text]
    words = "\n\n".join([text, *notes])
    return [TextContent(words), *images], problems


def is_image(path: str) -> bool:
    """Whether a path is that of an image, by its content."""
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
    """A name as it stands, and without the punctuation of the sentence behind it."""
    bare = name.rstrip(_CLOSING)
    return [name] if bare == name or not bare else [name, bare]
