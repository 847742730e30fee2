"""Find and list sessions: the directory for a working directory, session metadata, lookup by path or id.

Reads headers and counts lines, never loads conversations. Must not know how a session is written.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from retinue.core.errors import SessionError, SessionNotFound, quote
from retinue.core.messages import TextContent, UserMessage
from retinue.sessions.entry import decode_entry, decode_head, decode_object
from retinue.sessions.files import make_private

HEAD_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 1024 * 1024
FIRST_MESSAGE_CHARS: Final = 200
CHILD_FILE: Final = "session.jsonl"
_SHOWN: Final = 10


class SessionInfo(Struct, rename="camel", omit_defaults=True):
    path: str
    id: str
    cwd: str
    created: str
    """ISO time from the header."""
    modified_ms: int
    messages: int
    name: str = ""
    parent_session: str | None = None
    first_message: str = ""
    mtime_ns: int = 0
    """With `size`: tells whether the file has changed since."""
    size: int = 0
    name_offset: int = -1


def list_sessions(
    directories: Iterable[Path], *, children: bool = False, cache: Path | None = None, cwd: str | None = None
) -> list[SessionInfo]:
    """List the sessions in these directories, latest first, without unreadable files.

    `children` adds the sessions of subagents; `cache` is a file that saves reading unchanged sessions again; `cwd`
    limits the list to one working directory.
    """
    known = _load_cache(cache)
    infos: dict[str, SessionInfo] = {}
    for directory in directories:
        for path, stat in _walk(directory, children=children):
            old = known.get(path)
            if old is not None and old.mtime_ns == stat.st_mtime_ns and old.size == stat.st_size:
                infos[path] = old
            elif (info := read_info(path, stat, old)) is not None:
                infos[path] = info
    if cache is not None and any(known.get(path) is not info for path, info in infos.items()):
        _save_cache(cache, known | infos)
    chosen = [info for info in infos.values() if cwd is None or _is_same_cwd(info.cwd, cwd)]
    return sorted(chosen, key=lambda info: (info.modified_ms, info.path), reverse=True)


def list_directories(agent_dir: Path) -> list[Path]:
    try:
        with os.scandir(agent_dir / "sessions") as found:
            return sorted(Path(item.path) for item in found if item.is_dir())
    except OSError:
        return []


def find_recent(directory: Path, cwd: str | None = None) -> Path | None:
    """Return the main session that was written last, optionally of one working directory."""
    files = sorted(_walk(directory, children=False), key=lambda item: (item[1].st_mtime_ns, item[0]), reverse=True)
    for path, stat in files:
        header = _read_header(path)
        if header is not None and stat.st_size and (cwd is None or _is_same_cwd(_get_text(header, "cwd"), cwd)):
            return Path(path)
    return None


def find_session(reference: str, *, directory: Path, agent_dir: Path, cwd: str | Path = ".") -> Path:
    """Find a session by path, id or unique beginning of an id.

    Raises SessionNotFound, which names the place if the id belongs to another working directory.
    """
    if not reference.strip():
        raise SessionNotFound("the session is empty: give a path, an id or the beginning of an id")
    if "/" in reference or reference.endswith(".jsonl"):
        path = Path(cwd, Path(reference).expanduser())
        if path.exists():
            return path
        raise SessionNotFound(f"there is no session file {quote(str(path), 300)}")
    if "\0" not in reference:
        found = _match(reference, _read_ids([directory]))
        if found is not None:
            return found
        others = [other for other in list_directories(agent_dir) if other != directory]
        elsewhere = _match(reference, _read_ids(others))
        if elsewhere is not None:
            header = _read_header(str(elsewhere)) or {}
            raise SessionNotFound(
                f"session {quote(reference)} belongs to {_get_text(header, 'cwd') or 'another directory'}: "
                f"go there, or give its path {elsewhere}"
            )
    raise SessionNotFound(f"there is no session {quote(reference)} in {directory}; `retinue sessions` lists them")


def _match(reference: str, ids: Iterable[tuple[str, Path]]) -> Path | None:
    pairs = list(ids)
    exact = [path for session_id, path in pairs if session_id == reference]
    if exact:
        return max(exact)
    begun = [(session_id, path) for session_id, path in pairs if session_id.startswith(reference)]
    if len(begun) > 1:
        shown = "\n".join(f"  {session_id}  {path}" for session_id, path in begun[:_SHOWN])
        more = f"\n  and {len(begun) - _SHOWN} more" if len(begun) > _SHOWN else ""
        raise SessionError(f"{quote(reference)} fits {len(begun)} sessions; give more of the id:\n{shown}{more}")
    return next((path for _, path in begun), None)


def _read_ids(directories: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for directory in directories:
        for name, _ in _walk(directory, children=True):
            path = Path(name)
            if path.name == CHILD_FILE:
                yield path.parent.name, path
            elif "_" in path.stem:
                yield path.stem.partition("_")[2], path
            else:
                # The file name does not contain the id.
                yield _get_text(_read_header(name) or {}, "id"), path


def _walk(directory: Path, *, children: bool) -> Iterator[tuple[str, os.stat_result]]:
    for item in _scan_directory(directory):
        with suppress(OSError):
            if item.name.endswith(".jsonl"):
                if item.is_file():
                    yield item.path, item.stat()
            elif children and item.is_dir(follow_symlinks=False):
                for run in _scan_directory(Path(item.path)):
                    path = os.path.join(run.path, CHILD_FILE)
                    if os.path.isfile(path):
                        yield path, os.stat(path)


def _scan_directory(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def read_info(path: str, stat: os.stat_result, old: SessionInfo | None = None) -> SessionInfo | None:
    """Read a session's metadata; None if it is not a session. If the file has grown, continues from `old`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        head = os.read(fd, HEAD_BYTES)
        info = _read_head(path, head, stat)
        if info is None:
            return None
        start = 0
        if old is not None and old.id == info.id and 0 < old.size <= stat.st_size:
            info.messages, info.name_offset, start = old.messages, old.name_offset, old.size - 1
        _count(fd, info, head, start)
        if info.name_offset >= 0:
            info.name = _read_name(os.pread(fd, HEAD_BYTES, info.name_offset))
        return info
    except OSError:
        return None
    finally:
        os.close(fd)


def _read_head(path: str, head: bytes, stat: os.stat_result) -> SessionInfo | None:
    lines = head.split(b"\n")
    header = _find_header(lines)
    if header is None:
        return None
    parent = header.get("parentSession")
    return SessionInfo(
        path=path,
        id=_get_text(header, "id"),
        cwd=_get_text(header, "cwd"),
        created=_get_text(header, "timestamp"),
        modified_ms=stat.st_mtime_ns // 1_000_000,
        messages=0,
        parent_session=parent if isinstance(parent, str) else None,
        first_message=_find_first_message(lines),
        mtime_ns=stat.st_mtime_ns,
        size=stat.st_size,
    )


def _count(fd: int, info: SessionInfo, head: bytes, position: int) -> None:
    # pi and retinue write the type first, so counting needs no parsing. Chunks overlap by the length of a marker.
    message, name = b'\n{"type":"message"', b'\n{"type":"session_info"'
    if b'{"type":"session"' not in head:
        message, name = b'"type": "message"', b'{"type": "session_info"'
    keep = b""
    while chunk := os.pread(fd, min(CHUNK_BYTES, info.size - position), position):
        info.messages += (keep[-len(message) + 1 :] + chunk).count(message)
        last = (keep + chunk).rfind(name)
        if last >= 0:
            info.name_offset = position - len(keep) + last
        position += len(chunk)
        keep = chunk[-len(name) + 1 :]


def _read_name(data: bytes) -> str:
    name = decode_entry(data.lstrip(b"\n").partition(b"\n")[0]).name
    return name.strip() if isinstance(name, str) else ""


def _find_header(lines: list[bytes]) -> dict[str, Any] | None:
    for number, line in enumerate(lines):
        body = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 0 else line.strip()
        head = decode_head(body) if body else None
        if head is not None:
            return decode_object(body) if head.type == "session" else None
    return None


def _read_header(path: str) -> dict[str, Any] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _find_header(os.read(fd, HEAD_BYTES).split(b"\n"))
    except OSError:
        return None
    finally:
        os.close(fd)


def _find_first_message(lines: list[bytes]) -> str:
    for line in lines:
        if b'"user"' not in line:
            continue
        entry = decode_entry(line) if decode_head(line) else None
        message = entry.message if entry is not None else UNSET
        if isinstance(message, UserMessage):
            content = message.content
            texts = [content] if isinstance(content, str) else [b.text for b in content if isinstance(b, TextContent)]
            text = " ".join(" ".join(texts).split())
            return text if len(text) <= FIRST_MESSAGE_CHARS else text[: FIRST_MESSAGE_CHARS - 1] + "…"
    return ""


def _get_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _is_same_cwd(one: str, other: str) -> bool:
    return bool(one) and os.path.abspath(one) == os.path.abspath(other)


def _load_cache(cache: Path | None) -> dict[str, SessionInfo]:
    if cache is None:
        return {}
    try:
        rows = msgspec.json.decode(cache.read_bytes(), type=list[SessionInfo])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {row.path: row for row in rows}


def _save_cache(cache: Path, infos: Mapping[str, SessionInfo]) -> None:
    # If the cache cannot be written, the next list is only slower.
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        make_private(cache.parent)
        rows = [info for path, info in infos.items() if os.path.exists(path)]
        temporary.write_bytes(msgspec.json.encode(rows))
        temporary.replace(cache)
    except (OSError, UnicodeEncodeError):
        with suppress(OSError):
            temporary.unlink()
