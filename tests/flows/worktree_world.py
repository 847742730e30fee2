"""A repository, a place for copies and a look at what is left: shared by the tests of worktrees."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from retinue.features.worktree.copies import Copy, CopyRequest, create_copy
from retinue.features.worktree.records import Records
from retinue.features.worktree.saved_work import KeptCopy, keep_work
from retinue.testing import make_repo

FILES = {"a.txt": "one\n", "src/b.txt": "two\n", ".gitignore": "*.log\nbuild/\n"}


def git(cwd: Path, *arguments: str, check: bool = True) -> str:
    """Plain git, as a user or an agent runs it."""
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass
class World:
    repo: Path
    tmp: Path
    records: Records

    @classmethod
    def make(cls, path: Path) -> "World":
        (path / "tmp").mkdir()
        return cls(make_repo(path / "repo", FILES), path / "tmp", Records(path / "records"))

    async def create(self, run_id: str = "r1", cwd: Path | None = None, **wishes: object) -> Copy:
        request = CopyRequest(run_id, cwd or self.repo, **{"description": "do it", **wishes})  # type: ignore[arg-type]
        return await create_copy(request, self.records, tmp=self.tmp)

    async def keep(self, copy: Copy) -> KeptCopy:
        return await keep_work(copy.record, self.records)

    @property
    def left(self) -> list[str]:
        """What should be gone: copies, git's notes about them, records, locks of git."""
        places = (self.tmp, self.repo / ".git" / "worktrees", self.records.directory)
        names = [name for place in places if place.is_dir() for name in os.listdir(place)]
        locks = [path.name for path in (self.repo / ".git").rglob("*.lock")]
        return sorted([name for name in names if not name.endswith(".lock")] + locks)

    @property
    def branches(self) -> list[str]:
        return git(self.repo, "branch", "--format=%(refname:short)").split("\n")

    def show(self, branch: str, path: str) -> str:
        return git(self.repo, "show", f"{branch}:{path}")
