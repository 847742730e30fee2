"""The small repository that a run in a copy writes: refs, index and new objects of its own, the rest is borrowed.

Whatever is in it later was written by the run: we read files of it, never let git work with it, and follow no link.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress

from retinue.core.errors import quote
from retinue.features.worktree.records import Record, Records
from retinue.sandbox.open_beneath import open_beneath
from retinue.tools.git import GitGuard

SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks")
SHARED = ("shallow", "info/exclude", "info/attributes")
_PACKED = "packed-refs"
_MAX_TEXT = 4 * 1024 * 1024


def make_repository(record: Record, records: Records, git_dir: str, guard: GitGuard, refs: bytes) -> None:
    """Lay it out, with the refs there are now, and let the copy's `.git` lead to it. Raises OSError."""
    own = records.repository_path(record.run_id)
    if os.path.lexists(own):
        shutil.rmtree(own)
    for name in _FOLDERS:
        os.makedirs(os.path.join(own, name), 0o700)
    _write(own, "objects/info/alternates", os.fsencode(os.path.join(record.common, "objects")) + b"\n")
    _write(own, "config", os.fsencode(_render_config(record, git_dir, guard)))
    _write(own, "HEAD", f"{record.base}\n".encode())
    _write(own, _PACKED, refs)
    records.refs_path(record.run_id).write_bytes(refs)
    for folder, name in ((git_dir, "index"), (git_dir, "info/sparse-checkout"), *((record.common, n) for n in SHARED)):
        with suppress(FileNotFoundError):
            shutil.copyfile(os.path.join(folder, name), os.path.join(own, name))
    # Git's own record of the copy stays: it keeps the commit that the run began with from being thrown away.
    _write(record.path, ".git", b"gitdir: " + os.fsencode(own) + b"\n")


def _render_config(record: Record, git_dir: str, guard: GitGuard) -> str:
    """What the user has configured, wherever that says nothing of where files are."""
    is_long = len(record.base) == 64
    lines = ["[core]", f"\trepositoryformatversion = {int(is_long)}"]
    lines += ["[extensions]", "\tobjectFormat = sha256"] if is_long else []
    worktree = os.path.join(git_dir, "config.worktree")
    included = [os.path.join(record.common, "config"), *([worktree] if os.path.exists(worktree) else ())]
    lines += ["[include]", *(f"\tpath = {_escape(path)}" for path in included)]
    lines += ["[core]", "\tbare = false", f"\tworktree = {_escape(record.path)}", "\tlogAllRefUpdates = true"]
    if not guard.has_hooks_path:
        lines.append(f"\thooksPath = {_escape(os.path.join(record.common, 'hooks'))}")
    if guard.author is not None:
        # Also where the user's configuration gives it by the place of the repository.
        name, email = guard.author
        lines += ["[user]", f"\tname = {_escape(name)}", f"\temail = {_escape(email)}"]
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def read_file(root: str, path: str, most: int = _MAX_TEXT) -> bytes:
    """The end of a file below a directory; nothing where there is none, or a link, or something that is no file."""
    try:
        handle = _open_file(root, path)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - most))
        return file.read(most)


def copy_file(root: str, path: str, target: str) -> None:
    """Copy an ordinary file below a directory. Raises OSError."""
    with os.fdopen(_open_file(root, path), "rb") as file, open(target, "wb") as copy:
        shutil.copyfileobj(file, copy)


def _open_file(root: str, path: str) -> int:
    folder, name = os.path.split(path)
    parent = open_beneath(root, folder)
    try:
        return open_entry(name, parent)
    finally:
        os.close(parent)


def open_entry(name: str, parent: int) -> int:
    """A descriptor of an ordinary file in a directory that is open. Raises OSError."""
    handle = os.open(name, _READING, dir_fd=parent)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(f"{quote(name)} is not a file")


def write_ref(own: str, name: str, commit: str) -> None:
    """Let a ref of a run's repository be a commit, whatever it was. Raises OSError."""
    folder, last = os.path.split(name)
    parent = open_beneath(own, folder, make=True)
    draft = f"{last}.{secrets.token_hex(4)}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            file.write(f"{commit}\n".encode())
        os.replace(draft, last, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        os.close(parent)


def read_head(own: str) -> str:
    """The commit that a run's repository is at; nothing when it has none."""
    told = read_file(own, "HEAD", 4096).decode("utf-8", "replace").strip()
    name = told.removeprefix("ref:").strip()
    if name != told:
        told = read_file(own, name, 4096).decode("utf-8", "replace").strip() if _is_ref(name) else ""
        told = told or _read_packed(own).get(name, "")
    return told if SHA.fullmatch(told) else ""


def _is_ref(name: str) -> bool:
    return name.startswith("refs/") and ".." not in name and "\0" not in name


def _read_packed(own: str) -> dict[str, str]:
    lines = read_file(own, _PACKED, 64 * _MAX_TEXT).decode("utf-8", "replace").split("\n")
    return {name: sha for sha, _, name in (line.partition(" ") for line in lines) if SHA.fullmatch(sha)}


def walk(top: str) -> Iterator[tuple[str, list[str], list[str], int]]:
    """Directories with their open descriptors, as `os.fwalk` gives them; nothing where there is none, or a link."""
    with suppress(FileNotFoundError):
        yield from os.fwalk(top)


def list_refs(own: str, begun: bytes) -> Iterator[str]:
    """The commits, or whatever it is, that refs of a run's repository name and did not name when it began."""
    known = set(begun.decode("utf-8", "replace").split("\n"))
    for name, sha in _read_packed(own).items():
        if f"{sha} {name}" not in known:
            yield sha
    for top in ("refs", "worktrees"):
        for _, _, names, handle in walk(os.path.join(own, top)):
            for name in names:
                with suppress(OSError), os.fdopen(open_entry(name, handle), "rb") as file:
                    told = file.read(128).decode("utf-8", "replace").strip()
                    if SHA.fullmatch(told):
                        yield told
