import hashlib
import os
import subprocess
import time

import pytest

from retinue.features.changed_files import find_changed_files, list_files
from retinue.testing import make_repo

START = {"a.txt": "a\n", "b.txt": "b\n", "src/c.txt": "c\n", ".gitignore": "build/\n*.log\n", "kept.log": "k\n"}


@pytest.fixture(params=["repository", "folder"])
def place(request, tmp_path):
    if request.param == "repository":
        return make_repo(tmp_path / "place", START)
    for path, text in START.items():
        (tmp_path / "place" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "place" / path).write_text(text)
    return tmp_path / "place"


@pytest.fixture
def repo(tmp_path):
    return make_repo(tmp_path / "repo", START)


async def compare(place, script):
    before = await list_files(str(place))
    try:
        subprocess.run(script, shell=True, cwd=place, check=True, capture_output=True)
        return await find_changed_files(before)
    finally:
        before.close()


async def changes(place, script):
    done = await compare(place, script)
    assert done.notes == ()
    return {file.path: file.change for file in done.files}


async def test_each_kind_of_change_is_seen(place):
    script = "echo x >> a.txt; rm b.txt; mkdir new; echo n > new/n.txt; ln -s a.txt link; mv src/c.txt src/d.txt"
    assert await changes(place, script) == {
        "a.txt": "changed",
        "b.txt": "deleted",
        "link": "created",
        "new/n.txt": "created",
        "src/c.txt": "deleted",
        "src/d.txt": "created",
    }


async def test_files_come_with_hashes(place):
    done = await compare(place, "printf one > a.txt; rm b.txt; ln -s nowhere link")
    shown = {file.path: file.sha256 for file in done.files}
    expected = {"a.txt": b"one", "link": b"nowhere"}
    assert shown == {"b.txt": None, **{path: hashlib.sha256(data).hexdigest() for path, data in expected.items()}}


async def test_nothing_changes_without_a_change(place):
    assert await changes(place, "cat a.txt; mkdir empty; rmdir empty") == {}


async def test_earlier_changes_do_not_count(repo):
    (repo / "a.txt").write_text("dirty\n")
    (repo / "loose.txt").write_text("loose\n")
    (repo / "b.txt").unlink()
    assert await changes(repo, "true") == {}
    script = "echo more >> loose.txt; git checkout -q a.txt b.txt; rm src/c.txt"
    assert await changes(repo, script) == {
        "a.txt": "changed",
        "b.txt": "created",
        "loose.txt": "changed",
        "src/c.txt": "deleted",
    }


async def test_ignored_files_are_left_out(repo):
    assert await changes(repo, "mkdir build; echo x > build/o; echo x > x.log; echo x >> kept.log") == {
        "kept.log": "changed"
    }


async def test_commit_hides_nothing(repo):
    script = "echo x >> a.txt; echo n > n.txt; git add -A; git -c user.name=a -c user.email=b commit -qm x"
    done = await compare(repo, script)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, capture_output=True, text=True).stdout.strip()
    assert [file.path for file in done.files] == ["a.txt", "n.txt"] and done.commit == head


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("echo x >> a.txt; git update-index --assume-unchanged a.txt", {"a.txt": "changed"}),
        ("echo x >> a.txt; git update-index --skip-worktree a.txt", {"a.txt": "changed"}),
        ("touch -r a.txt t; printf 'z\\n' > a.txt; touch -r t a.txt; rm t", {"a.txt": "changed"}),
        ("echo x > evil; echo evil >> .git/info/exclude", {"evil": "created"}),
        ("echo x > evil; echo evil >> .gitignore", {"evil": "created", ".gitignore": "changed"}),
        ("mkdir d; echo x > d/evil; echo '*' > d/.gitignore", {"d/evil": "created", "d/.gitignore": "created"}),
        ("mkdir n; cd n; git init -q; echo x > evil", {"n/evil": "created"}),
        ("cd src; git init -q; echo x > evil; echo x >> c.txt", {"src/evil": "created", "src/c.txt": "changed"}),
        ("rm .git/index; echo x >> a.txt", {"a.txt": "changed"}),
        ("echo junk > .git/index; echo x > n.txt", {"n.txt": "created"}),
    ],
)
async def test_agent_cannot_hide_a_file(repo, script, seen):
    assert await changes(repo, script) == seen


async def test_flags_of_an_earlier_agent_hide_nothing(repo):
    subprocess.run(
        "git update-index --assume-unchanged a.txt; git update-index --skip-worktree b.txt", shell=True, cwd=repo
    )
    assert await changes(repo, "echo x >> a.txt; rm b.txt") == {"a.txt": "changed", "b.txt": "deleted"}


async def test_broken_repository_is_told(repo):
    done = await compare(repo, "rm -r .git/objects .git/HEAD")
    assert done.files == () and "git failed" in done.notes[0]


async def test_listing_survives_its_process(repo, tmp_path):
    folder = tmp_path / "state"
    await list_files(str(repo), folder)
    (repo / "a.txt").write_text("later\n")
    before = await list_files(str(repo), folder)
    assert [file.path for file in (await find_changed_files(before)).files] == ["a.txt"]
    before.close()
    assert not folder.exists()


async def test_large_repository_is_cheap(tmp_path):
    files = {f"d{i}/f{j}.txt": f"{i} {j}\n" for i in range(100) for j in range(100)}
    repo = make_repo(tmp_path / "repo", files)
    fastest = {"status": 9.0, "ours": 9.0}
    for _ in range(5):
        begun_s = time.perf_counter()
        subprocess.run(["git", "status", "--porcelain"], cwd=repo, check=True)
        fastest["status"] = min(fastest["status"], time.perf_counter() - begun_s)
        begun_s = time.perf_counter()
        before = await list_files(str(repo))
        fastest["ours"] = min(fastest["ours"], time.perf_counter() - begun_s)
        before.close()
    assert fastest["ours"] < 2 * fastest["status"] + 0.1


def test_links_are_not_followed(tmp_path):
    from retinue.features.changed_files import hash_file

    (tmp_path / "place").mkdir()
    (tmp_path / "secret").write_text("s")
    os.symlink(tmp_path, tmp_path / "place" / "out")
    assert hash_file(str(tmp_path / "place"), "out/secret") is None
