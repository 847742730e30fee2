"""Finds and reads context files (AGENTS.md etc.) and prompt files (SYSTEM.md, APPEND_SYSTEM.md) by pi's rules.

Context files are only text and need no trust; a project's prompt files do. Must not know how a prompt is assembled.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.features.sandbox import find_workspace
from retinue.settings.files import FileBound, bind_folder, bind_project, bind_user, list_hidden, read_bounded
from retinue.settings.paths import Paths, expand_path

CONTEXT_NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
MAX_CONTEXT_BYTES = 128 * 1024
"""Limit for one context or prompt file; the rest is cut off with a note."""
MAX_PROMPT_BYTES = 1024 * 1024


MAX_IMPORT_DEPTH = 5
MAX_IMPORTS = 30
_IMPORT = late_pattern(r"(?<![\w`.@/])@((?:\./|\../|[\w.-]+/)*[\w.-]*\w)")
_CODE = late_pattern(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class TextFile(Struct, frozen=True):
    """A file that is put into the prompt."""

    path: str
    text: str


class PromptFiles(Struct, frozen=True):
    """What files and flags contribute to the system prompt."""

    context: tuple[TextFile, ...] = ()
    """Context files, from the most general to the most specific."""
    system: str | None = None
    """Replaces the built-in prompt."""
    append: tuple[str, ...] = ()
    """Appended to the prompt."""
    diagnostics: tuple[Diagnostic, ...] = ()


def load_prompt_files(
    paths: Paths,
    *,
    trusted: bool,
    system: str | None = None,
    append: Sequence[str] = (),
    use_context: bool = True,
    hidden: tuple[str, ...] = (),
) -> PromptFiles:
    """Read what applies in a directory; `system` and `append` are flags, each a text or a file name.

    Links may not leave their root or lead to hidden files: the default ones plus `hidden`. Raises UsageError if a flag
    names an unusable file; anything else is a diagnostic.
    """
    diagnostics: list[Diagnostic] = []
    context = _load_context(paths, hidden, diagnostics) if use_context else ()
    if system is not None:
        prompt: str | None = read_text_or_file(system, paths, "--system-prompt")
    else:
        prompt = _load_prompt(paths, "SYSTEM.md", hidden, diagnostics, trusted=trusted)
    if append:
        appended = tuple(read_text_or_file(text, paths, "--append-system-prompt") for text in append)
    else:
        found = _load_prompt(paths, "APPEND_SYSTEM.md", hidden, diagnostics, trusted=trusted)
        appended = (found,) if found is not None else ()
    return PromptFiles(context, prompt, appended, tuple(diagnostics))


def read_text_or_file(value: str, paths: Paths, flag: str) -> str:
    """Return the content of the file that a flag names, or the flag's text if there is no such file."""
    # A text with several lines, or longer than a path can be, is not a file name.
    if not value or "\n" in value or "\0" in value or len(value.encode("utf-8", "surrogateescape")) > 4096:
        return value
    try:
        path = expand_path(value, paths.home, paths.cwd, flag)
        data = read_bounded(path, MAX_PROMPT_BYTES)
    except ConfigError as error:
        if _is_name(value):
            raise UsageError(f"{flag}: {error}") from None
        return value
    if data is None:
        return value
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(f"{flag}: {quote(value)} is larger than {MAX_PROMPT_BYTES} bytes")
    if b"\0" in data:
        raise UsageError(f"{flag}: {quote(value)} is a binary file; expected text")
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _is_name(value: str) -> bool:
    """Return whether a text that cannot be opened was meant as a file name: a sentence has spaces."""
    return " " not in value.strip()


def _load_context(paths: Paths, hidden: tuple[str, ...], diagnostics: list[Diagnostic]) -> tuple[TextFile, ...]:
    found = [_load_first(paths.agent_dir, bind_user(paths, hidden), diagnostics)]
    checkout = find_workspace(paths.cwd, paths.home)
    for folder in reversed((paths.cwd, *paths.cwd.parents)):
        if folder == paths.agent_dir:
            continue
        bound = bind_folder(folder, paths, hidden)
        if folder.is_relative_to(checkout):
            bound = FileBound(_find_top(paths, checkout), list_hidden(paths, hidden))
        file = _load_first(folder, bound, diagnostics)
        found.append(file)
        if file is not None and os.path.basename(file.path).startswith("CLAUDE"):
            found += _load_imports(file, bound, diagnostics)
    return tuple({file.path: file for file in found if file is not None}.values())


def _load_imports(file: TextFile, bound: FileBound, diagnostics: list[Diagnostic]) -> list[TextFile]:
    """Load the files that `@path` in a CLAUDE.md names, and those that they name; only files in the same root."""
    found: dict[str, TextFile] = {file.path: file}
    waiting = [(file, 0)]
    for origin, depth in waiting:  # grows during the loop
        text = _CODE.sub("", origin.text)
        for name in dict.fromkeys(_IMPORT.findall(text)) if depth < MAX_IMPORT_DEPTH else ():
            path = Path(os.path.normpath(os.path.join(os.path.dirname(origin.path), name)))
            # A hidden file such as .env may hold secrets; one outside the project is not the project's to name.
            is_bad = path.name.startswith(".") or not path.is_relative_to(bound.root)
            if is_bad or str(path) in found or len(found) > MAX_IMPORTS or not path.is_file():
                continue
            imported = _load_text(path, bound, diagnostics)
            if imported is not None:
                found[str(path)] = TextFile(str(path), imported)
                waiting.append((found[str(path)], depth + 1))
    return [item for item in found.values() if item is not file]


def _find_top(paths: Paths, checkout: Path) -> str:
    """Return the checkout, or the project around it if the user owns it: others may mark a shared folder as one."""
    is_ours = os.stat(paths.project).st_uid == os.geteuid()
    return str(paths.project if is_ours and checkout.is_relative_to(paths.project) else checkout)


def _load_first(folder: Path, bound: FileBound, diagnostics: list[Diagnostic]) -> TextFile | None:
    """Load a directory's context file: the first of the names that is usable."""
    for name in CONTEXT_NAMES:
        text = _load_text(folder / name, bound, diagnostics)
        if text is not None:
            return TextFile(str(folder / name), text)
    return None


def _load_prompt(
    paths: Paths, name: str, hidden: tuple[str, ...], diagnostics: list[Diagnostic], *, trusted: bool
) -> str | None:
    """Load the trusted project's prompt file, else the user's; never both."""
    if trusted and ".pi" in paths.configs:
        text = _load_text(paths.project / ".pi" / name, bind_project(paths, hidden), diagnostics)
        if text is not None:
            return text
    return _load_text(paths.agent_dir / name, bind_user(paths, hidden), diagnostics)


def _load_text(path: Path, bound: FileBound, diagnostics: list[Diagnostic]) -> str | None:
    try:
        data = read_bounded(path, MAX_CONTEXT_BYTES, bound)
    except ConfigError as error:
        diagnostics.append(Diagnostic(f"{error}; skipped", str(path), severity="warning", code="unreadable"))
        return None
    if data is None:
        return None
    if b"\0" in data:
        text = f"{path}: contains NUL bytes; expected text; skipped"
        diagnostics.append(Diagnostic(text, str(path), severity="warning", code="binary"))
        return None
    cut = len(data) > MAX_CONTEXT_BYTES
    text = data[:MAX_CONTEXT_BYTES].decode("utf-8", "ignore" if cut else "replace").removeprefix("\ufeff")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
        message = f"{path}: is not valid UTF-8; invalid bytes are shown as \\ufffd"
        diagnostics.append(Diagnostic(message, str(path), severity="warning", code="encoding"))
    if cut:
        message = f"{path}: only the first {MAX_CONTEXT_BYTES} bytes are used"
        diagnostics.append(Diagnostic(message, str(path), severity="warning", code="truncated"))
        text += f"\n\n[cut here: only the first {MAX_CONTEXT_BYTES} bytes of this file are shown]"
    return text
