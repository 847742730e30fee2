"""Edit agent files: change one field and keep every other byte, create new files, delete files.

Names are checked before they become paths; writes are atomic. This file must not know where agents are looked for.
"""

import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence

from retinue.core.definition import Definition, Dialect
from retinue.core.errors import ConfigError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.definitions.discover import decode
from retinue.definitions.document import find_fault, fold_name, suggest_name
from retinue.definitions.frontmatter import BlockError, Fences, FrontmatterBlock, Scalar, parse_block

FieldValue = str | bool | int | float | Sequence[str]
_LINE = late_pattern(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_PLAIN = late_pattern(r"[A-Za-z_/(][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*\Z")
_TYPED = ("true", "false", "null", "yes", "no", "on", "off")


def set_enabled(definition: Definition, *, enabled: bool) -> None:
    """Enable or disable the agent in its file. Raises ConfigError; UsageError for a packaged agent."""
    if definition.source == "builtin":
        remedy = f"to change it, first run: retinue agents eject {definition.name}"
        raise UsageError(f"{quote(definition.name)} is built in; {remedy}")
    if definition.dialect == "codingcode":
        fields: dict[str, FieldValue | None] = {"disabled": None if enabled else True}
        if enabled and "enabled" in definition.lines:
            fields["enabled"] = None
    else:
        fields = {"enabled": None if enabled else False}
    change_file(definition.path, fields, find_fences(definition.dialect))


def find_fences(dialect: Dialect) -> Fences:
    return "pi" if dialect == "pi" else "lines"


def change_file(path: str, fields: Mapping[str, FieldValue | None], fences: Fences = "pi") -> None:
    """Set or remove fields of a file; it is replaced atomically and keeps its mode. Raises ConfigError."""
    # If the path is a link, change its target, not the link.
    target = os.path.realpath(path)
    try:
        with open(target, "rb") as file:
            before = file.read()
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or 'unknown').lower()}") from None
    after = before
    for key, value in fields.items():
        after = set_field(after, key, value, path=path, fences=fences)
    if after == before:
        return
    try:
        with open(target, "rb") as file:
            if file.read() != before:
                raise ConfigError(f"{path}: changed while it was being edited; try again")
        temporary = _write_beside(target, after, mode)
        try:
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or 'unknown').lower()}") from None


def set_field(
    data: bytes, key: str, value: FieldValue | None, *, path: str = "the file", fences: Fences = "pi"
) -> bytes:
    """Set one field, or remove it if None; all other bytes stay the same. Raises ConfigError."""
    before = _parse(data, path, fences)
    lines = _LINE.findall(data)
    found = [entry for entry in before.entries if entry.key == key]
    if len(found) > 1:
        raise ConfigError(f"{path}:{found[1].line}: {key!r} is given twice; remove one by hand")
    if not found and value is None:
        return data
    last = _find_closing(lines, fences)
    if not found:
        newline = re.search(rb"[\r\n]+\Z", lines[last - 1])
        lines.insert(last, f"{key}: {render_value(value)}".encode() + (newline[0] if newline else b"\n"))
    else:
        start = found[0].line - 1
        stop = min((entry.line - 1 for entry in before.entries if entry.line > found[0].line), default=last)
        while stop - 1 > start and (not lines[stop - 1].strip() or lines[stop - 1].startswith(b"#")):
            stop -= 1
        lines[start:stop] = [] if value is None else [_set_line(lines[start], found[0].value, key, value, stop - start)]
    after = b"".join(lines)
    _check_edit(before, _parse(after, path, fences), key, path)
    return after


def _set_line(line: bytes, old: object, key: str, value: FieldValue | None, height: int) -> bytes:
    ending = re.search(rb"[\r\n]*\Z", line)
    comment = re.search(rb"[ \t]+#.*", line) if height == 1 and isinstance(old, Scalar) and not old.is_quoted else None
    kept = comment[0] if comment else b""
    return f"{key}: {render_value(value)}".encode() + kept.rstrip(b"\r\n") + (ending[0] if ending else b"")


def _find_closing(lines: list[bytes], fences: Fences) -> int:
    opening = next(index for index, line in enumerate(lines) if line.removeprefix(b"\xef\xbb\xbf").strip())
    for index in range(opening + 1, len(lines)):
        line = lines[index]
        if line.startswith(b"---") and (fences == "pi" or not line[3:].strip()):
            return index
    raise ConfigError("the frontmatter is never closed")  # unreachable: the block was parsed before


def _parse(data: bytes, path: str, fences: Fences) -> FrontmatterBlock:
    text, problem = decode(data, path)
    if problem is not None:
        raise ConfigError(problem.message)
    try:
        return parse_block(text, fences)
    except BlockError as error:
        raise ConfigError(f"{path}:{error.line or 1}: {error}; fix it by hand first") from None


def _check_edit(before: FrontmatterBlock, after: FrontmatterBlock, key: str, path: str) -> None:
    """Refuse an edit that would change anything else, such as several fields on one line or a multi-line value."""

    def other(block: FrontmatterBlock) -> list[tuple[str, object]]:
        return [(entry.key, _without_lines(entry.value)) for entry in block.entries if entry.key != key]

    if other(before) != other(after) or before.body != after.body:
        raise ConfigError(f"{path}: {key!r} cannot be changed without touching other fields; edit the file by hand")


def _without_lines(value: object) -> object:
    if isinstance(value, Scalar):
        return value.text, value.is_quoted
    values = getattr(value, "values", ())
    if isinstance(values, dict):
        return {name: _without_lines(item) for name, item in values.items()}
    return [_without_lines(item) for item in values]


def render_value(value: FieldValue | None) -> str:
    """A value as one line of YAML, quoted where it would otherwise mean something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        return "[" + ", ".join(_quote_item(item) for item in value) + "]"
    risky = ": " in value or " #" in value or value.endswith((":", " ")) or value.lower() in _TYPED
    return value if _PLAIN.match(value) and not risky else _quote(value)


def _quote_item(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) and text.lower() not in _TYPED else _quote(text)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    pieces = (char if char.isprintable() else _escape(char) for char in escaped)
    return '"' + "".join(pieces) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def render_definition(fields: Mapping[str, FieldValue | None], body: str) -> str:
    """The text of a new agent file; fields that are None are left out."""
    lines = [f"{key}: {render_value(value)}" for key, value in fields.items() if value is not None]
    return "\n".join(("---", *lines, "---", "", body.strip(), ""))


def write_definition(folder: str, name: str, text: str, suffix: str = ".md") -> str:
    """Create a file in a folder; returns its path. Raises UsageError for a bad or taken name, else ConfigError."""
    check_name(name)
    path = os.path.join(folder, f"{name}{suffix}")
    try:
        os.makedirs(folder, exist_ok=True)
        taken = next((item for item in os.listdir(folder) if fold_name(item) == fold_name(f"{name}{suffix}")), None)
        if taken is not None:
            raise UsageError(f"{os.path.join(folder, taken)} exists already; edit or delete it")
        temporary = _write_beside(path, text.encode(), 0o644)
        try:
            # Unlike a rename, a link never replaces a file that was created in the meantime.
            os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except FileExistsError:
        raise UsageError(f"{path} exists already; edit or delete it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or 'unknown').lower()}") from None
    return path


def check_name(name: str) -> None:
    """Raises UsageError if this is not a valid agent name."""
    fault = find_fault(name)
    if fault:
        slug = suggest_name(name)
        raise UsageError(f"the name {quote(name)} {fault}" + (f" (such as {quote(slug)})" if slug else ""))


def delete_definition(definition: Definition) -> None:
    """Delete an agent's file (a link, not its target). Raises UsageError for a packaged agent, else ConfigError."""
    if definition.source == "builtin":
        raise UsageError(
            f"{quote(definition.name)} is built in; to switch it off: retinue agents disable {definition.name}"
        )
    try:
        os.unlink(definition.path)
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        raise ConfigError(f"{definition.path}: cannot be deleted: {reason}") from None


def _write_beside(path: str, data: bytes, mode: int) -> str:
    descriptor, temporary = tempfile.mkstemp(prefix=".retinue-", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.chmod(temporary, mode)
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary
