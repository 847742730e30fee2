"""A face with a repository and a worker with a folder: shared by the tests of workspaces that travel."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from retinue.durable.cluster.branch_import import land
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, pack
from retinue.testing import make_repo
from tests.flows.worktree_world import git

FILES = {"a.txt": "one\n", "src/b.txt": "two\n", ".gitignore": "*.log\nbuild/\n"}
BRANCH = "pi-agent-r1"
CACHE = ["cache/blank", "cache/git", "cache/lock", "cache/use"]
"""What is left on a worker at rest."""


def read_tree(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every file with its kind and content, less what is git's."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        files = [name for name in files if name != ".git"]
        for path in (
            Path(folder, name) for name in files + [each for each in folders if Path(folder, each).is_symlink()]
        ):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path.relative_to(root))] = ("link", os.fsencode(os.readlink(path)))
            else:
                found[str(path.relative_to(root))] = ("program" if mode & 0o100 else "file", path.read_bytes())
    return found


@dataclass
class Journey:
    """One run that is sent from a laptop to workers."""

    home: Path
    repo: Path
    parcel: WorkspaceBundle
    bundle: bytes

    @classmethod
    async def begin(cls, home: Path, repo: Path | None = None, **wishes: object) -> "Journey":
        repo = repo or make_repo(home / "repo", FILES)
        parcel, bundle = await pack(repo, **wishes)  # type: ignore[arg-type]
        return cls(home, repo, parcel, bundle)

    async def open(self, *snapshots: bytes, worker: str = "worker") -> Checkout:
        return await Checkout.open(self.parcel, self.bundle, self.home / worker, snapshots)

    async def land(self, *snapshots: bytes, branch: str = BRANCH, **wishes: object) -> str:
        return await land(self.repo, self.parcel, snapshots, branch, description="do it", **wishes)  # type: ignore[arg-type]

    @property
    def refs(self) -> list[str]:
        return git(self.repo, "for-each-ref", "--format=%(refname)").split("\n")

    def left(self, worker: str = "worker") -> list[str]:
        """What is on a worker, without what is in its caches."""
        folder = self.home / worker
        found = [path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()]
        return sorted({str(path) if path.parts[0] != "cache" else f"cache/{path.parts[2]}" for path in found})


async def take(checkout: Checkout) -> bytes:
    """The bundle of a snapshot that is expected."""
    taken = await checkout.snapshot()
    assert taken is not None
    return taken.bundle
