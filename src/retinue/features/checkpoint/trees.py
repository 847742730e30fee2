"""Stores the files of a workspace as trees of git, with exact bytes, beside the user's index.

The git directory is ours: configuration, index and attributes. Only the objects and one ref are in the user's.
"""

import asyncio
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from retinue.core.errors import RetinueError, quote
from retinue.core.launch import Territory
from retinue.features.checkpoint.records import GIT_LINK, FileVersion, Versions
from retinue.features.worktree.pointers import find_filtered
from retinue.sandbox.gitdirs import read_git_dirs
from retinue.sessions.files import make_private
from retinue.tools.git import GitGuard, GitResult, confine_git, list_config, load_guard, run_git
from retinue.tools.path_guard import is_hidden

GIT_S = 60.0
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_NEW_BYTES = 512 * 1024 * 1024
"""Of the untracked files that one tree adds."""
REFS = "refs/retinue/checkpoints"
_CHUNK = 100
_FOLDER = "040000"
_Tree: TypeAlias = Mapping[str, FileVersion]
# These outrank every .gitattributes. An encoding can only be left unspecified.
_RAW = "* -text -filter -ident !eol !working-tree-encoding\n"
_COPIED = ("core.filemode", "core.ignorecase", "core.symlinks", "core.precomposeunicode", "extensions.objectformat")
_SYSTEM_ATTRIBUTES = "/etc/gitattributes"
_SAME_SIZE = "!filter !ident !working-tree-encoding"
"""Without these attributes git changes nothing but line ends."""
_SIZES = ("cat-file", "--buffer", "--batch-check=%(objectsize)")
_CONVERTS = ("core.attributesfile", "core.autocrlf")


class Snapshot(Struct, frozen=True):
    tree: str
    left_out: list[str]


class _Sorted(Struct):
    changed: list[str] = []
    gone: list[str] = []
    left_out: list[str] = []


class WorkspaceTrees:
    """The trees of one checkout. One snapshot at a time."""

    def __init__(self, top: str, folder: Path, find_hidden: Callable[[], Territory]) -> None:
        """`find_hidden` says which files agents must not read: they could read our objects."""
        self._top = top
        self._find_hidden = find_hidden
        self._folder = folder
        self._index = folder / "index"
        self._objects = ""
        """Where objects are written, if not into the user's repository."""
        self._dirs = read_git_dirs(top)
        self._common = os.path.realpath(self._dirs.common)
        self._guard = GitGuard()
        self._config: Mapping[str, str] | None = None
        self._seen: tuple[int, ...] | None = None
        """The user's index when its ignored files were last looked up."""
        self._last: Snapshot | None = None
        self._format = "sha1"

    @property
    def is_possible(self) -> bool:
        """Whether there is a repository that really belongs to this checkout."""
        return bool(self._dirs.common) and (self._dirs.is_plain or self._dirs.is_known)

    @property
    def _is_sparse(self) -> bool:
        """Whether some files are not checked out, or were not."""
        return os.path.exists(os.path.join(self._dirs.own, "info", "sparse-checkout"))

    async def take(self) -> Snapshot:
        """Store all files. Raises RetinueError."""
        await self._prepare()
        self._index.with_name("index.lock").unlink(missing_ok=True)  # of a process that was killed
        names, tracked = await self._list_tracked()
        # Beside each other, and the first one with threads of its own: this is nearly all that a checkpoint costs.
        modified, others = await asyncio.gather(
            self._own("diff-files", "-z", "--name-only", "--ignore-submodules=dirty"),
            self._own("ls-files", "-z", "--others", "--exclude-standard"),
        )
        names, tracked = [*names, *modified.fields, *others.fields], tracked | set(modified.fields)
        found = await asyncio.to_thread(self._sort_out, list(dict.fromkeys(names)), tracked)
        known = set() if self._last is None else set(self._last.left_out)
        gone = [*found.gone, *(name for name in found.left_out if name not in known)]
        if self._last is None or found.changed or gone or known != set(found.left_out):
            with self._confine() if found.changed else nullcontext() as guard:
                for words, paths in (("--force-remove",), gone), (("--add", "--replace"), found.changed):
                    if paths:
                        await self._own("update-index", *words, "-z", "--stdin", names=paths, guard=guard)
                self._last = Snapshot((await self._own("write-tree", guard=guard)).text, found.left_out)
        return self._last

    def _confine(self) -> AbstractContextManager[GitGuard]:
        return confine_git(self._guard, self._top, self._find_hidden(), (self._common, str(self._folder)))

    async def read_head(self) -> str:
        """Return the commit that is checked out; empty if there is none."""
        return (await self._user("rev-parse", "--verify", "--quiet", "HEAD", may_fail=True)).text

    async def compare(self, old: str, new: str) -> dict[str, Versions]:
        """Return the files that differ between two trees, without other repositories. Raises RetinueError."""
        if old == new:
            return {}
        await self._prepare()
        rows = (await self._own("diff-tree", "-r", "-t", "-z", "--no-renames", old, new)).fields[::2]
        facts = [row.removeprefix(":").split(" ") for row in rows]
        named = {name for row in facts for mode, name in zip(row[:2], row[2:4], strict=True) if mode == _FOLDER}
        # Agents can replace objects, and git believes what it reads: only contents that we have checked count.
        trees = await self.read({old, new, *named}, "tree")
        return dict(_compare_trees({name: _parse_tree(data, len(name) // 2) for name, data in trees.items()}, old, new))

    async def render_patch(self, tree: str, left_out: Sequence[str], *, most: int) -> tuple[str, bool, list[str]]:
        """Return a patch from a tree to the files as they are now, whether it is whole, and what is left out.

        Nothing is stored. Above `most` bytes it is a summary. Raises RetinueError.
        """
        await self._prepare()
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            other = WorkspaceTrees(self._top, Path(scratch), self._find_hidden)
            other._objects = os.path.join(scratch, "objects")
            with suppress(FileNotFoundError):
                # With its time: git reads the content of files that are newer.
                await asyncio.to_thread(shutil.copy2, self._index, other._index)
            now = await other.take()
            gone = list(dict.fromkeys((*left_out, *now.left_out)))
            where = (tree, now.tree, "--", ".", *(f":(exclude,literal){name}" for name in gone))
            words = ("diff", "--no-color", "--no-renames")
            shown = await other._own(*words, *where, may_fail=True, most=most)
            is_whole = shown.code != 125
            if not is_whole:
                shown = await other._own("diff", "--stat=100", *where, most=most)
        return _check("diff", shown).text, is_whole, gone

    async def list_files(self, tree: str, paths: Sequence[str]) -> set[str]:
        """Return which of these paths are files of a tree. Raises RetinueError."""
        return set((await self._own("ls-tree", "-r", "-z", "--name-only", "--full-tree", tree)).fields).intersection(
            paths
        )

    async def list_ignored(self, paths: Sequence[str]) -> set[str]:
        """Return which of these paths the present rules ignore."""
        await self._prepare()
        found = await self._own("check-ignore", "--no-index", "-z", "--stdin", names=paths, may_fail=True)
        return set(found.fields)

    async def spare(
        self, targets: dict[str, FileVersion | None], head: str
    ) -> tuple[dict[str, FileVersion | None], list[str]]:
        """Return the versions that files are to get, and those that only a change of the sparse checkout explains.

        A file of the commit `head` that was not checked out is never removed: if it was changed, it gets that version.
        """
        if not targets or not self._is_sparse:
            return targets, []
        rows = (await self._own("ls-tree", "-r", "-z", "--full-tree", head)).fields if head else []
        known = {path: facts.split() for facts, _, path in (row.partition("\t") for row in rows)}
        guard = await load_guard(self._top)
        if not isinstance(guard, GitGuard):
            raise RetinueError(f"git cannot read the configuration of {quote(self._top, 200)}: {guard.problem}")
        listed = await run_git(["ls-files", "-z", "--modified"], self._top, timeout_s=GIT_S, guard=guard)
        changed = [path for path in listed.fields if path in known and path in targets and targets[path] is None]
        filtered = await find_filtered(self.ask, guard.filters, changed)
        back = {path: FileVersion(known[path][0], known[path][2]) for path in changed if path not in filtered}
        skipped = await self.list_skipped()
        left = [path for path, version in targets.items() if path in (known if version is None else skipped)]
        left = [path for path in left if path not in back]
        return {**{path: version for path, version in targets.items() if path not in left}, **back}, left

    async def list_skipped(self) -> set[str]:
        """Return the files that a sparse checkout leaves out."""
        rows = (await self._user("ls-files", "-z", "-t", "--cached")).fields
        return {row[2:] for row in rows if row.startswith("S ")}

    async def read(self, ids: Iterable[str], kind: str = "blob") -> dict[str, bytes]:
        """Return contents by their names; what is missing or damaged is left out."""
        await self._prepare()
        found: dict[str, bytes] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), _CHUNK):
            lines = "".join(f"{name}\n" for name in wanted[start : start + _CHUNK]).encode()
            data = (await self._own("cat-file", "--batch", data=lines, most=2**31)).out
            at = 0
            while at < len(data):
                end = data.index(b"\n", at)
                name, _, size = data[at:end].decode("ascii", "replace").partition(" ")
                at = end + 1
                if size != "missing":
                    found_kind, _, length = size.partition(" ")
                    content, at = data[at : at + int(length)], at + int(length) + 1
                    if found_kind == kind and self.name(content, kind) == name:
                        found[name] = content
        return found

    def name(self, content: bytes, kind: str = "blob") -> str:
        """Return the name that git gives to a content."""
        head = f"{kind} {len(content)}\0".encode()
        return hashlib.new(self._format, head + content, usedforsecurity=False).hexdigest()

    async def keep(self, name: str, trees: Iterable[str]) -> None:
        """Keep these trees, and no other ones of this name, from being removed by git. Raises RetinueError."""
        await self._prepare()
        lines = "".join(f"040000 tree {tree}\t{tree}\0" for tree in sorted(set(trees))).encode()
        with self._confine() as guard:
            made = await self._own("mktree", "-z", data=lines, guard=guard)
            await self._user("update-ref", f"{REFS}/{name}", made.text, guard=guard)

    async def forget(self, names: Iterable[str]) -> None:
        for name in names:
            await self._user("update-ref", "-d", f"{REFS}/{name}", may_fail=True)

    async def ask(self, *words: str) -> GitResult:
        """Run a git command in the user's repository; a failure is returned."""
        return await self._user(*words, may_fail=True)

    async def _prepare(self) -> None:
        if self._config is not None:
            return
        rows = await list_config(self._top)
        if isinstance(rows, GitResult):
            raise RetinueError(f"git cannot read the configuration of {quote(self._top, 200)}: {rows.problem}")
        config = {key: value for _, key, value in rows}
        safe = [(key, value) for scope, key, value in rows if key == "safe.directory" and scope in ("system", "global")]
        excludes = [("core.excludesFile", config["core.excludesfile"])] if "core.excludesfile" in config else []
        # The batch method needs one sync for many objects.
        sync = [("core.fsyncMethod", "batch"), ("core.fsync", "loose-object,reference")]
        self._guard = GitGuard((*excludes, *safe, *sync))
        self._format = config.get("extensions.objectformat", "sha1")
        await asyncio.to_thread(self._make_folder, config)
        self._config = config

    def _make_folder(self, config: Mapping[str, str]) -> None:
        for name in ("info", "refs", "objects"):
            make_private(self._folder / name)
        is_long = "extensions.objectformat" in config
        rows = [("core.repositoryformatversion", str(int(is_long))), ("core.bare", "false")]
        rows += [(key, config[key]) for key in _COPIED if key in config]
        text = "".join(f"[{key.partition('.')[0]}]\n\t{key.partition('.')[2]} = {value}\n" for key, value in rows)
        (self._folder / "config").write_text(text)
        (self._folder / "HEAD").write_text("ref: refs/heads/none\n")
        (self._folder / "info" / "attributes").write_text(_RAW)

    async def _list_tracked(self) -> tuple[list[str], set[str]]:
        """Return files that the user's index has and ours may not have; all of them if our index is new.

        The second result are files that count as tracked. Makes our index if there is none.
        """
        with suppress(OSError):
            shutil.copyfile(os.path.join(self._dirs.common, "info", "exclude"), self._folder / "info" / "exclude")
        user = os.path.join(self._dirs.own, "index")
        try:
            status = os.stat(user)
        except FileNotFoundError:
            return [], set()
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._index.exists():
            if signature == self._seen:
                return [], set()
            ignored = (await self._user("ls-files", "-z", "--cached", "--ignored", "--exclude-standard")).fields
            self._seen = signature
            return ignored, set(ignored)
        draft = await asyncio.to_thread(self._copy_index, user)
        listed, read = await asyncio.gather(
            self._user("ls-files", "-z", "-v", "--cached"),
            self._own("ls-files", "-z", "--", ".git", may_fail=True, index=draft),
        )
        names = list(dict.fromkeys(row[2:] for row in listed.fields))
        self._seen = signature
        if read.ok and all(row.startswith("H ") for row in listed.fields):
            names = await self._find_converted(draft) if self._converts(names) else []
            if names:
                await self._own("update-index", "--force-remove", "-z", "--stdin", names=names, index=draft)
            draft.replace(self._index)
        return names, set(names)

    async def _find_converted(self, index: Path) -> list[str]:
        """Return the files of which git may have stored other bytes: new line ends change the size of a file."""
        rows = [row.partition("\t") for row in (await self._own("ls-files", "-z", "--stage", index=index)).fields]
        exact, listed, stored = await asyncio.gather(
            self._user("ls-files", "-z", "--", f":(attr:{_SAME_SIZE})"),
            self._own("ls-files", "-z", "--debug", index=index),
            # After the mode, and before the number of the stage.
            self._own(*_SIZES, data="".join(f"{facts[7:-2]}\n" for facts, _, _ in rows).encode()),
        )
        sizes = [row.partition("\t")[0] for row in listed.text.split("\n  size: ")[1:]]
        names, known = [name for _, _, name in rows], set(exact.fields)
        if len(sizes) != len(names):
            return names  # a format of another git
        found = zip(names, sizes, stored.text.splitlines(), strict=True)
        return [name for name, size, other in found if size != other or name not in known]

    def _converts(self, names: Iterable[str]) -> bool:
        """Return whether git may store other bytes than a file has."""
        config = self._config or {}
        told = any(config.get(key, "false").lower() not in ("false", "no", "off", "0", "") for key in _CONVERTS)
        places = (os.path.join(self._dirs.common, "info", "attributes"), os.path.join(self._top, ".gitattributes"))
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return (
            told
            or any(map(os.path.exists, (*places, _SYSTEM_ATTRIBUTES, os.path.join(home, "git", "attributes"))))
            or any(name.endswith(".gitattributes") for name in names)
        )

    def _copy_index(self, user: str) -> Path:
        draft = self._index.with_name("index.draft")
        draft.write_bytes(Path(user).read_bytes())
        # The stored times must not look newer than the files: git compares them with the time of the index.
        status = os.stat(user)
        os.utime(draft, ns=(status.st_atime_ns, status.st_mtime_ns))
        return draft

    def _sort_out(self, names: Sequence[str], tracked: set[str]) -> _Sorted:
        """Sort files into those to store, those that are no files any more, and those that are left out."""
        found, room, top = _Sorted(), MAX_NEW_BYTES, self._top
        folders: dict[str, bool] = {}
        hidden = self._find_hidden()
        for name in names:
            if name.endswith("/"):
                continue  # another repository
            path, folder = os.path.join(top, name), os.path.dirname(name)
            if folder not in folders:
                place = os.path.join(top, folder) if folder else top
                folders[folder] = os.path.realpath(place) == place
            try:
                status = os.lstat(path)
            except (OSError, ValueError):
                status = None
            if (
                status is None
                or not folders[folder]
                or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))
            ):
                found.gone.append(name)
                continue
            size = status.st_size
            is_readable = stat.S_ISLNK(status.st_mode) or os.access(path, os.R_OK)
            if (
                is_hidden(path, hidden)
                or size > MAX_FILE_BYTES
                or not is_readable
                or (size > room and name not in tracked)
            ):
                found.left_out.append(name)
                continue
            room -= 0 if name in tracked else size
            found.changed.append(name)
        return found

    async def _own(
        self,
        *words: str,
        names: Sequence[str] = (),
        data: bytes = b"",
        may_fail: bool = False,
        most: int = 2**28,
        index: Path | None = None,
        guard: GitGuard | None = None,
    ) -> GitResult:
        objects = os.path.join(self._dirs.common, "objects")
        env = {
            "GIT_DIR": str(self._folder),
            "GIT_WORK_TREE": self._top,
            "GIT_INDEX_FILE": str(index or self._index),
            "GIT_OBJECT_DIRECTORY": self._objects or objects,
            **({"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects} if self._objects else {}),
            "GIT_NO_REPLACE_OBJECTS": "1",
        }
        data += b"".join(os.fsencode(name) + b"\0" for name in names)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.write(data)
            file.seek(0)
            guard, stdin = guard or self._guard, file.fileno()
            done = await run_git(words, self._top, timeout_s=GIT_S, env=env, guard=guard, stdin=stdin, max_output=most)
        return done if may_fail else _check(words[0], done)

    async def _user(self, *words: str, may_fail: bool = False, guard: GitGuard | None = None) -> GitResult:
        env = {"GIT_DIR": self._dirs.own, "GIT_WORK_TREE": self._top}
        guard = guard or self._guard
        done = await run_git(words, self._top, timeout_s=GIT_S, env=env, guard=guard, max_output=2**28)
        return done if may_fail else _check(words[0], done)


def _parse_tree(data: bytes, size: int) -> _Tree:
    """Return the mode and the object of each entry of a tree; `size` is the length of an object's name."""
    found, at = {}, 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        mode, at = data[at:space].decode().zfill(6), end + 1 + size
        found[os.fsdecode(data[space + 1 : end])] = FileVersion(mode, data[end + 1 : at].hex())
    return found


def _compare_trees(trees: Mapping[str, _Tree], old: str, new: str, folder: str = "") -> Iterator[tuple[str, Versions]]:
    """Yield the files that differ; an empty name is an empty tree. Raises RetinueError for a tree that is missing."""
    if lost := {old, new} - {"", *trees}:
        raise RetinueError(f"checkpoints: the stored tree {min(lost)} is lost or damaged")
    before, after = trees.get(old, {}), trees.get(new, {})
    for name in sorted({*before, *after}):
        sides = before.get(name), after.get(name)
        modes = {each.mode for each in sides if each is not None}
        if sides[0] == sides[1]:
            continue
        if _FOLDER in modes:
            inner = ["" if each is None or each.mode != _FOLDER else each.id for each in sides]
            yield from _compare_trees(trees, inner[0], inner[1], f"{folder}{name}/")
        if not modes <= {_FOLDER} and GIT_LINK not in modes:
            first, last = (None if each is None or each.mode == _FOLDER else each for each in sides)
            yield folder + name, (first, last)


def _check(command: str, done: GitResult) -> GitResult:
    if not done.ok:
        raise RetinueError(f"checkpoints: git {command} failed: {done.problem}")
    return done
