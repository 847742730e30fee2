import os

from retinue.testing import make_repo
from retinue.views.catalogue import list_files, walk


def plant(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


async def test_ignored_files_are_left_out(tmp_path):
    repo = make_repo(tmp_path / "repo", {"README.md": "x"})
    plant(repo, "src/main.py", "build/x.o", "new file.txt")
    (repo / ".gitignore").write_text("build\n")
    assert await list_files(repo) == [".gitignore", "README.md", "new file.txt", "src/", "src/main.py"]


async def test_only_the_folder_itself_is_listed(tmp_path):
    repo = make_repo(tmp_path / "repo", {"README.md": "x"})
    plant(repo, "top.py", "sub/inner.py")
    assert await list_files(repo / "sub") == ["inner.py"]


async def test_deleted_files_are_gone(tmp_path):
    repo = make_repo(tmp_path / "repo", files={"a.py": "x", "b.py": "x"})
    (repo / "a.py").unlink()
    assert "a.py" not in await list_files(repo)
    assert "b.py" in await list_files(repo)


async def test_folders_without_git_are_walked(tmp_path):
    plant(tmp_path, "a.txt", "deep/er/b.txt", "node_modules/x.js", ".venv/y.py")
    os.symlink("/", tmp_path / "root")
    assert await list_files(tmp_path) == ["a.txt", "deep/", "deep/er/", "deep/er/b.txt"]


async def test_walk_is_bounded(tmp_path):
    plant(tmp_path, *(f"d{n}/f{m}" for n in range(10) for m in range(10)))
    assert len([name for name in await walk(tmp_path, 25) if not name.endswith("/")]) == 25
