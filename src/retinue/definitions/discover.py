"""Find the folders of agent files and read the files.

This file must not know what fields mean, or which file wins when two have the same name.
"""

import errno
import hashlib
import os
import shlex
import stat
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import FOREIGN, Definition, Dialect, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import UsageError, quote
from retinue.core.output_schema import check_schema, parse_schema
from retinue.definitions.dialects import codingcode, pi, sticky
from retinue.definitions.fields import show_place
from retinue.definitions.places import FOREIGN_PLACES, RULE_FILES, list_plugins

if TYPE_CHECKING:
    from retinue.definitions.denials import Denial

MARKDOWN = (".md", ".markdown")
_PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "builtin")


class Root(Struct, frozen=True):
    path: str
    """A folder, or for the agents of OpenCode also a file that lists them."""
    dialect: Dialect
    source: Source
    suffixes: tuple[str, ...] = (".md",)
    boundary: str = ""
    """The directory in which its files must really be; empty: anywhere, if they belong to the user."""
    hidden: tuple[str, ...] = ()
    """Real paths that must not be read, whatever link leads there."""
    is_deep: bool = False
    """Its folders are searched, too."""


MAX_FOLDERS = 500
"""Maximum number of folders searched below one root."""


class AgentFolders(Struct, frozen=True):
    """The directories that determine which agent files exist."""

    project: Path
    agent_dir: Path
    home: Path | None = None
    configs: tuple[str, ...] = (".pi", ".agents", ".codingcode")
    """The project's configuration folders that may be read."""
    hidden: tuple[str, ...] = ()
    """Real paths that are hidden from agents."""
    sources: tuple[Dialect, ...] = FOREIGN
    """The tools whose agents are read besides our own."""


def find_roots(places: AgentFolders, nearest: str) -> list[Root]:
    """All roots, highest precedence first: project, user, builtin; within a level pi, codingcode, sticky, then other
    tools.

    `nearest` is the project's folder of agents, as returned by `find_nearest`.
    """
    project, agent_dir, home, hidden = str(places.project), str(places.agent_dir), places.home, places.hidden
    user = [Root(os.path.join(agent_dir, "agents"), "pi", "user", MARKDOWN, hidden=hidden)]
    if home is not None:
        user.append(Root(os.path.join(home, ".codingcode", "agents"), "codingcode", "user", hidden=hidden))
    user.append(Root(os.path.join(agent_dir, "subagents"), "sticky", "user", hidden=hidden))
    own = [make_project_root(nearest, places)]
    if ".codingcode" in places.configs:
        own.append(make_project_root(os.path.join(project, ".codingcode", "agents"), places))
    own += [make_project_root(path, places) for path in _list_foreign(places)] if places.project != home else []
    user += _list_user_roots(places)
    taken = {root.path for root in user}
    builtin = [
        Root(os.path.join(_PACKAGED, "pi"), "pi", "builtin"),
        Root(os.path.join(_PACKAGED, "codingcode"), "codingcode", "builtin"),
        Root(os.path.join(_PACKAGED, "sticky"), "sticky", "builtin"),
    ]
    # In the home directory, the user's own directories would otherwise count as the project's, too.
    return [root for root in own if root.path and root.path not in taken] + user + builtin


def make_project_root(folder: str, places: AgentFolders) -> Root:
    """A folder of the project's agents; its location determines the dialect."""
    for place in FOREIGN_PLACES:
        at = os.path.join(places.project, place.path)
        if not place.is_users and (folder == at or folder.startswith(f"{at}/")):
            bounds = str(places.project), places.hidden
            return Root(folder, place.dialect, "project", place.suffixes, *bounds, place.is_deep)
    is_codingcode = os.path.basename(os.path.dirname(folder)) == ".codingcode"
    dialect: Dialect = "codingcode" if is_codingcode else "pi"
    suffixes = (".md",) if is_codingcode else MARKDOWN
    return Root(folder, dialect, "project", suffixes, str(places.project), places.hidden)


def _list_foreign(places: AgentFolders) -> list[str]:
    """The places of other tools' agents in the project."""
    return [
        os.path.join(places.project, place.path)
        for place in FOREIGN_PLACES
        if not place.is_users and place.dialect in places.sources and place.path.partition("/")[0] in places.configs
    ]


def _list_user_roots(places: AgentFolders) -> list[Root]:
    """The places of other tools' agents in the home directory; agents of plugins come after the tool's own."""
    if places.home is None:
        return []
    found: list[Root] = []
    for dialect in (name for name in FOREIGN if name in places.sources):
        own = [place for place in FOREIGN_PLACES if place.is_users and place.dialect == dialect]
        plugins = list_plugins(places.home, places.project) if dialect == "claude" else []
        found += [
            Root(
                os.path.join(places.home, place.path), dialect, "user", place.suffixes, "", places.hidden, place.is_deep
            )
            for place in own
        ]
        found += [Root(path, dialect, "user", hidden=places.hidden, is_deep=True) for path in plugins]
    return found


def list_rule_files(places: AgentFolders) -> list[Root]:
    """The files whose rules restrict agents of other tools. They are read in untrusted folders, too."""
    found: list[Root] = []
    for place in RULE_FILES:
        base = places.home if place.is_users else places.project
        if base is not None and place.dialect in places.sources and (place.is_users or base != places.home):
            bounds = "" if place.is_users else str(base)
            source: Source = "user" if place.is_users else "project"
            found.append(Root(os.path.join(base, place.path), place.dialect, source, (), bounds, places.hidden))
    return found


def load_rules(root: Root) -> "list[Denial]":
    """The rules of one file that restrict agents; none if there is no such file."""
    from retinue.definitions.denials import Denial, parse_rules

    if not os.path.lexists(root.path):
        return []
    try:
        if not os.path.isfile(root.path):
            return [Denial(root.path, "the file", fault="is not a regular file")]
        data, status, real = _read(root.path)
    except OSError as error:
        return [Denial(root.path, "the file", fault=_explain(error))]
    if real != root.path and (fault := _find_link_fault(real, status, root)):
        return [Denial(root.path, "the file", fault=fault)]
    return parse_rules(data, root.path, root.dialect)


def list_deep(root: Root) -> list[Root]:
    """The root and, if it is deep, the folders in it, without links."""
    found = [root]
    if root.is_deep and not os.path.islink(root.path):
        for place, names, _ in os.walk(root.path):
            names[:] = sorted(
                name for name in names if name[0] != "." and not os.path.islink(os.path.join(place, name))
            )
            found += [replace(root, path=os.path.join(place, name)) for name in names]
            if len(found) >= MAX_FOLDERS:
                break
    return found[:MAX_FOLDERS]


def find_nearest(places: AgentFolders) -> str:
    """The project's `.pi/agents`, else its `.agents`; empty if it has neither or is the home directory."""
    if places.project == places.home:
        return ""
    for config, name in ((".pi", os.path.join(".pi", "agents")), (".agents", ".agents")):
        if config in places.configs and os.path.isdir(os.path.join(places.project, name)):
            return os.path.join(places.project, name)
    return ""


def is_packaged(path: str) -> bool:
    return path.startswith(_PACKAGED + os.sep)


MAX_BYTES = 1_000_000
# A file written this shortly before it was read may change again with the same timestamp.
_SETTLE_NS = 50_000_000
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_ABSENT = {errno.ENOENT, errno.ENOTDIR}

Parse = Callable[[str, str, Source], tuple[Definition | None, list[Diagnostic]]]


def _import_parser(dialect: Dialect) -> Parse:
    def parse(text: str, path: str, source: Source) -> tuple[Definition | None, list[Diagnostic]]:
        # Most users have files of few tools.
        found: Parse = import_module(f"retinue.definitions.dialects.{dialect}").parse
        return found(text, path, source)

    return parse


PARSERS: Mapping[Dialect, Parse] = {
    "pi": pi.parse,
    "codingcode": codingcode.parse,
    "sticky": sticky.parse,
    **{dialect: _import_parser(dialect) for dialect in FOREIGN},
}
Stamp = tuple[int, int, int, int]
_UNSETTLED: Stamp = (0, 0, 0, 0)


class FoundAgent(Struct, frozen=True):
    path: str
    stamp: Stamp | None
    """The file's state when it was read; None if it was written too recently to detect another change."""
    definition: Definition | None
    diagnostics: tuple[Diagnostic, ...]


class Listing(Struct, frozen=True):
    """The results for one root, sorted by file name."""

    root: Root
    stamp: Stamp | None
    files: tuple[FoundAgent, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def load_root(root: Root, before: Mapping[str, FoundAgent]) -> Listing:
    """Read a root; a file that is unchanged since `before` is not read again."""
    stamp = _find_settled(root.path)
    if root.source == "project" and os.path.islink(root.path):
        text = "is a link, so nothing in it is read; put a real folder there"
        return Listing(root, stamp, (), (_tell(root.path, text, "link"),))
    if root.path.endswith((".json", ".jsonc")):
        return Listing(root, stamp, _load_config(root))
    if root.path.endswith(root.suffixes) and os.path.isfile(root.path):
        return Listing(root, stamp, (_load(root.path, root),))
    try:
        with os.scandir(root.path) as entries:
            found = sorted(
                (entry for entry in entries if entry.name.endswith(root.suffixes) and entry.name[0] != "."),
                key=lambda entry: entry.name,
            )
    except OSError as error:
        if error.errno in _ABSENT and not os.path.lexists(root.path):
            return Listing(root, None)
        return Listing(root, stamp, (), (_tell(root.path, _explain(error), "unreadable"),))
    files = []
    for entry in found:
        old = before.get(entry.path)
        if old is not None and old.stamp is not None and old.stamp == find_stamp(entry.path):
            files.append(old)
        else:
            files.append(_load_entry(entry, root))
    return Listing(root, stamp, tuple(files))


def _load_config(root: Root) -> tuple[FoundAgent, ...]:
    """The agents that one file of OpenCode lists."""
    path = root.path
    if not os.path.isfile(path):
        return ()
    from retinue.definitions.dialects.opencode import parse_config

    try:
        data, status, real = _read(path)
    except OSError as error:
        return (_refuse(path, find_stamp(path), f"cannot be read: {_explain(error)}", "unreadable"),)
    if real != path and (fault := _find_link_fault(real, status, root)):
        return (_refuse(path, _to_stamp(status), fault, "link"),)
    stamp = _to_stamp(status) if time.time_ns() - status.st_mtime_ns > _SETTLE_NS else None
    return tuple(_finish(item, told, root, stamp) for item, told in parse_config(data, path, root.source))


def load_accepted(root: Root, accepted: Mapping[str, str]) -> Listing:
    """The files of an untrusted root whose content is still what the user accepted."""
    files = [
        _load(path, root, digest=digest)
        for path, digest in accepted.items()
        if os.path.dirname(path) == root.path and os.path.lexists(path)
    ]
    return Listing(root, _find_settled(root.path), tuple(files))


def _find_settled(path: str) -> Stamp | None:
    stamp = find_stamp(path)
    return _UNSETTLED if stamp is not None and time.time_ns() - stamp[0] < _SETTLE_NS else stamp


def is_same(listing: Listing) -> bool:
    """Whether a root is unchanged. Packaged files do not change while the program runs."""
    if listing.root.source == "builtin":
        return True
    if find_stamp(listing.root.path) != listing.stamp:
        return False
    return all(found.stamp is not None and find_stamp(found.path) == found.stamp for found in listing.files)


def find_stamp(path: str) -> Stamp | None:
    """Times, size and inode of a file or directory; None if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _to_stamp(status)


def _load_entry(entry: os.DirEntry[str], root: Root) -> FoundAgent:
    path = entry.path
    if entry.is_symlink() and not os.path.exists(path):
        return _refuse(path, _UNSETTLED, "is a broken link", "link")
    return _load(path, root, is_file=entry.is_file(follow_symlinks=False))


def _find_link_fault(real: str, status: os.stat_result, root: Root) -> str:
    """Why a file must not be read, given its real location; empty if it may be read."""
    if any(_is_inside(real.casefold(), place.casefold()) for place in root.hidden):
        return f"leads to {quote(real, 200)}, which is hidden from agents since it may hold secrets; it is not read"
    if root.boundary and not _is_inside(real, os.path.realpath(root.boundary)):
        return "is a link that leads out of the project; it is not read"
    is_ours = bool(root.boundary) or status.st_uid in (os.geteuid(), 0)
    return "" if is_ours else f"leads to {quote(real, 200)}, which belongs to another user; it is not read"


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _load(path: str, root: Root, *, is_file: bool = False, digest: str | None = None) -> FoundAgent:
    """Read one file; with a `digest`, only if its content matches."""
    try:
        # Check the type before opening, since opening a device may have effects; O_NONBLOCK in case the file is
        # swapped.
        status = os.stat(path) if not is_file else None
        if status is None or stat.S_ISREG(status.st_mode):
            data, status, real = _read(path)
        else:
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            return _refuse(path, _to_stamp(status), f"is {kind}; it is skipped", "not-a-file")
    except OSError as error:
        return _refuse(path, find_stamp(path), f"cannot be read: {_explain(error)}", "unreadable")
    if real != path and root.source != "builtin" and (fault := _find_link_fault(real, status, root)):
        return _refuse(path, _to_stamp(status), fault, "link")
    stamp = _to_stamp(status) if time.time_ns() - status.st_mtime_ns > _SETTLE_NS else None
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        text = f"has changed since you accepted it; to use it: retinue trust --file {shlex.quote(path)} --yes"
        return _refuse(path, stamp, text, "changed")
    text, problem = decode(data, path)
    if problem is not None:
        return FoundAgent(path, stamp, None, (problem,))
    definition, diagnostics = PARSERS[root.dialect](text, path, root.source)
    return _finish(definition, diagnostics, root, stamp, path=path, is_accepted=digest is not None)


def _finish(
    definition: Definition | None,
    told: list[Diagnostic],
    root: Root,
    stamp: Stamp | None,
    *,
    path: str = "",
    is_accepted: bool = False,
) -> FoundAgent:
    if definition is not None and definition.schema_file:
        stamp = None  # the schema may change without its agent
        definition, more = _add_schema(definition, root, is_accepted=is_accepted)
        told += more
    return FoundAgent(path or root.path, stamp, definition, tuple(told))


def _add_schema(definition: Definition, root: Root, *, is_accepted: bool) -> tuple[Definition, list[Diagnostic]]:
    """Read the schema of an agent from its file; if that fails, the agent is disabled."""
    path = os.path.join(os.path.dirname(definition.path), os.path.expanduser(definition.schema_file))
    try:
        if is_accepted:
            raise UsageError("only the agent's file was accepted; write the schema into it, or trust the folder")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError("not a regular file")
        data, status, real = _read(path)
        if fault := _find_link_fault(real, status, root):
            raise UsageError(fault)
        return replace(definition, output_schema=check_schema(parse_schema(data))), []
    except (OSError, UsageError) as error:
        reason = _explain(error) if isinstance(error, OSError) else str(error)
    line = definition.lines.get("output_schema")
    text = f"{show_place(definition.path, line)}: output_schema: {quote(definition.schema_file, 200)}: {reason}"
    problem = Diagnostic(f"{text}; the agent is disabled", definition.path, line, code="field", field="output_schema")
    return replace(definition, enabled=False), [problem]


def _refuse(path: str, stamp: Stamp | None, text: str, code: str) -> FoundAgent:
    return FoundAgent(path, stamp, None, (_tell(path, text, code),))


def _read(path: str) -> tuple[bytes, os.stat_result, str]:
    """The content, status and real path of a file."""
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)
        real = _find_real(descriptor, path)
        # The size is only a hint, but a buffer of the maximum size for every file would cost more than the reading.
        data = os.read(descriptor, min(status.st_size, MAX_BYTES) + 1)
        while len(data) <= MAX_BYTES and len(data) < status.st_size:
            more = os.read(descriptor, MAX_BYTES + 1 - len(data))
            if not more:
                break
            data += more
        return data, status, real
    finally:
        os.close(descriptor)


def _find_real(descriptor: int, path: str) -> str:
    """The path of an open file, even if its name leads elsewhere by now."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
    except OSError:
        return os.path.realpath(path)


def decode(data: bytes, path: str) -> tuple[str, Diagnostic | None]:
    """Decode a file; returns the text, or a diagnostic if it is not valid text."""
    if len(data) > MAX_BYTES:
        return "", _tell(path, f"is larger than {MAX_BYTES} bytes, the limit for an agent file", "too-large")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "", _tell(path, "is UTF-16; save it as UTF-8", "encoding", 1)
    if (position := data.find(0)) >= 0:
        line = data.count(b"\n", 0, position) + 1
        return "", _tell(path, "has a NUL byte; expected text in UTF-8", "encoding", line)
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        shown = quote(data[error.start : error.start + 1].decode("latin-1"))
        return "", _tell(path, f"is not UTF-8 (byte {shown}); save it as UTF-8", "encoding", line)


def _to_stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _tell(path: str, text: str, code: str, line: int | None = None) -> Diagnostic:
    return Diagnostic(f"{show_place(path, line)}: {text}", path, line, code=code)


def _explain(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "the symbolic links form a loop"
    return (error.strerror or type(error).__name__).lower()
