"""Prompt templates: `/name args` of pi's `prompts` folders and of Claude Code's `.claude/commands`.

Follows no symbolic links and runs nothing that a template names. Must not decide which folders are trusted: only
readable roots are passed in.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_line
from retinue.definitions.frontmatter import BlockError, Scalar, parse_block
from retinue.features.nofollow import Folder, decode_text, is_safe_name

MAX_BYTES = 128 * 1024
MAX_TEMPLATES = 500
MAX_DEPTH = 4
_PLACE = late_pattern(r"\$ARGUMENTS(?:\[(\d+)\])?|\$\{@:(\d+)(?::(\d+))?\}|\$\{(\d+):-([^}]*)\}|\$@|\$(\d+)")


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    description: str
    path: str
    body: str
    is_command: bool
    """One of Claude Code's commands, which get their arguments even without a place for them."""

    def fill(self, words: str) -> str:
        """The prompt with the arguments in their places; arguments are not searched for places again."""
        try:
            values = shlex.split(words)
        except ValueError:
            values = words.split()

        def replace(found: re.Match[str]) -> str:
            at, start, length, default_at, default, number = found.groups()
            if at is not None:
                return values[int(at)] if int(at) < len(values) else ""
            if start is not None:
                rest = values[max(int(start) - 1, 0) :]
                return " ".join(rest[: int(length)] if length is not None else rest)
            if default_at is not None:
                return (values[int(default_at) - 1] if 0 < int(default_at) <= len(values) else "") or default
            if number is not None:
                return values[int(number) - 1] if 0 < int(number) <= len(values) else ""
            return words

        text, count = _PLACE.subn(replace, self.body)
        return f"{text}\n\nARGUMENTS: {words}" if self.is_command and words and not count else text


def find_template_roots(
    project: Path, agent_dir: Path, home: Path | None, *, configs: Sequence[str]
) -> tuple[Path, ...]:
    """Where templates are searched, in order; `configs` are the project's trusted configuration folders."""
    roots = [project / ".pi" / "prompts"] if ".pi" in configs else []
    roots += [project / ".claude" / "commands"] if ".claude" in configs else []
    roots.append(agent_dir / "prompts")
    return (*roots, *((home / ".claude" / "commands",) if home is not None else ()))


def list_templates(roots: Sequence[Path]) -> dict[str, Template]:
    """All templates by name; the first of a name counts."""
    found: dict[str, Template] = {}
    for root in roots:
        for folder, name in _find_files(root):
            if len(found) < MAX_TEMPLATES and (template := _load(folder, name, root)) is not None:
                found.setdefault(template.name, template)
    return found


def _find_files(root: Path) -> Iterator[tuple[Folder, str]]:
    """The Markdown files of a root; Claude Code's commands may be in folders, which do not change their names."""
    waiting: list[tuple[str, ...]] = [()]
    for parts in waiting:  # grows during the loop
        with suppress(OSError), Folder.open(root, follow=False).walk(parts) as folder:
            for entry in sorted(folder.list(MAX_TEMPLATES), key=lambda entry: entry.name):
                if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                    yield folder, entry.name
                is_folder = entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                if is_folder and root.name == "commands" and len(parts) < MAX_DEPTH and len(waiting) < MAX_TEMPLATES:
                    waiting.append((*parts, entry.name))


def _load(folder: Folder, file: str, root: Path) -> Template | None:
    name = file.removesuffix(".md")
    if not is_safe_name(name):
        return None
    try:
        text = decode_text(folder.read(file, MAX_BYTES), MAX_BYTES)
    except OSError:
        return None
    fields: dict[str, str] = {}
    with suppress(BlockError):
        block = parse_block(text, "lines")
        text = block.body
        fields = {entry.key: entry.value.text for entry in block.entries if isinstance(entry.value, Scalar)}
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    about = " ".join(filter(None, (fields.get("argument-hint", ""), fields.get("description", "") or first)))
    return Template(name, escape_line(about, 200), str(folder.path / file), text.strip(), root.name == "commands")
