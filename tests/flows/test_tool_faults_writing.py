"""Faults T8 to T10 of writing and editing: modes, links, foreign changes and full disks."""

import asyncio
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.errors import ToolRetry
from retinue.core.tool import Tool, ToolContext
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.tool_world import Call, fail, make_call


@pytest.fixture
def tools() -> dict[str, Tool]:
    return build_tools(ToolOptions())


@pytest.fixture
def call(tools: dict[str, Tool], tmp_path: Path) -> Call:
    return make_call(tools, tmp_path)


def as_plain_user() -> list[str]:
    """What runs a program without rights; nothing when we have none ourselves."""
    if os.getuid():
        return []
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    reaches = subprocess.run([*user, sys.executable, "-c", "import retinue.tools.registry"], check=False)
    if reaches.returncode:
        pytest.skip("this Python is out of reach for other users")
    return user


async def test_write_makes_directories(call: Call, tmp_path: Path) -> None:
    assert await call("write", path="a/b/c.txt", content="hi\n") == "Successfully wrote to a/b/c.txt"
    assert (tmp_path / "a/b/c.txt").read_text() == "hi\n"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["write", "edit"])
async def test_mode_links_and_attributes_survive(call: Call, tmp_path: Path, name: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old\n")
    script.chmod(0o751)
    (tmp_path / "link").symlink_to("run.sh")
    os.link(script, tmp_path / "hard")
    arguments = {"content": "new\n"} if name == "write" else {"edits": [{"oldText": "old", "newText": "new"}]}
    text = await call(name, path="link", **arguments)
    assert "it had 1 more hard links; they keep the old content" in text
    assert (script.read_text(), (tmp_path / "hard").read_text()) == ("new\n", "old\n")
    assert ((tmp_path / "link").is_symlink(), stat.S_IMODE(script.stat().st_mode)) == (True, 0o751)
    assert sorted(os.listdir(tmp_path)) == ["hard", "link", "run.sh"]


async def test_write_refuses_special_targets(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    assert "named pipe" in await fail(call, "write", path="pipe", content="x")
    assert "a loop of symbolic links" in await fail(call, "write", path="loop", content="x")
    assert "is a directory" in await fail(call, "write", path=".", content="x")
    assert "names a directory" in await fail(call, "write", path="sub/", content="x")
    assert "Nothing was written" in await fail(call, "write", path="file/x", content="x")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of one megabyte; as a plain user a limit on file sizes does the same."""
    folder = Path(tempfile.mkdtemp())
    mounted = (
        os.getuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "retinue-test", str(folder)], capture_output=True, check=False
        ).returncode
        == 0
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    shutil.rmtree(folder)


async def test_full_disk_keeps_old_file(tools: dict[str, Tool], small_disk: Path) -> None:
    (small_disk / "a.txt").write_text("old")
    with pytest.raises(ToolRetry, match=r"(No space left on device|File too large)\. Nothing was written\."):
        await tools["write"].call({"path": "a.txt", "content": "x" * 3_000_000}, ToolContext(small_disk))
    assert ([path.name for path in small_disk.iterdir()], (small_disk / "a.txt").read_text()) == (["a.txt"], "old")


async def test_edit_keeps_bytes_it_does_not_name(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree\r\n\xff raw\rend")
    edits = [{"oldText": "one\ntwo", "newText": "1\n2"}, {"oldText": "three", "newText": "3\n3b"}]
    await call("edit", path="mixed.txt", edits=edits)
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\n3\r\n3b\r\n\xff raw\rend"


async def test_edit_detects_foreign_change(tools: dict[str, Tool], tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_text("unique start\n" + "filler line\n" * 200_000)
    arguments = {"path": "big.txt", "edits": [{"oldText": "unique start", "newText": "changed"}]}
    edit = asyncio.ensure_future(tools["edit"].call(arguments, ToolContext(tmp_path)))
    # The file is being matched in a thread now; somebody else is faster.
    while not list(tmp_path.glob(".retinue-*")) and not edit.done():
        with path.open("a") as file:
            file.write("mine\n")
        await asyncio.sleep(0)
    with pytest.raises(ToolRetry, match="changed by somebody else during this call; nothing was written"):
        await edit
    assert (path.read_text().startswith("unique start\n"), os.listdir(tmp_path)) == (True, ["big.txt"])


async def test_parallel_edits_are_all_kept(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"<{n}>\n" for n in range(20)) + "pad\n" * 40_000)
    (tmp_path / "alias").symlink_to("a.txt")
    async with asyncio.TaskGroup() as group:
        for n in range(20):
            arguments = {"path": "alias" if n % 2 else "a.txt", "oldText": f"<{n}>", "newText": f"[{n}]"}
            group.create_task(tools["edit"].call(arguments, ToolContext(tmp_path)))
    assert (tmp_path / "a.txt").read_text().splitlines()[:20] == [f"[{n}]" for n in range(20)]


async def test_plain_user_cannot_change_read_only() -> None:
    script = """
import asyncio, sys
from pathlib import Path
from retinue.core.errors import ToolFailed
from retinue.core.tool import ToolContext
from retinue.tools.registry import ToolOptions, build_tools

async def main():
    tools, context = build_tools(ToolOptions()), ToolContext(Path(sys.argv[1]))
    for name, arguments in [
        ("read", {"path": "secret"}),
        ("write", {"path": "fixed", "content": "x"}),
        ("edit", {"path": "fixed", "oldText": "old", "newText": "new"}),
        ("write", {"path": "closed/new", "content": "x"}),
        ("grep", {"pattern": "x", "path": "secret"}),
        ("ls", {"path": "dark"}),
        ("grep", {"pattern": "old", "path": "."}),
    ]:
        try:
            print(name, (await tools[name].call(arguments, context)).content[0].text.replace("\\n", "|"))
        except ToolFailed as error:
            print(name, error)

asyncio.run(main())
"""
    folder = Path(tempfile.mkdtemp())
    (folder / "secret").write_text("x")
    (folder / "fixed").write_text("old")
    for name in ("closed", "dark"):
        (folder / name).mkdir()
    for name, mode in {"secret": 0o200, "fixed": 0o444, "closed": 0o555, "dark": 0o311}.items():
        (folder / name).chmod(mode)
    folder.chmod(0o755)
    user = as_plain_user()
    if user:
        for path in [folder, *folder.iterdir()]:
            os.chown(path, 65534, 65534)
    try:
        done = subprocess.run(
            [*user, sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=20, check=False
        )
    finally:
        for name in ("closed", "dark"):
            (folder / name).chmod(0o755)
        shutil.rmtree(folder)
    assert done.stdout.splitlines() == [
        "read Permission denied: 'secret'.",
        "write Permission denied: 'fixed'. Nothing was written.",
        "edit Permission denied: 'fixed'. Nothing was written.",
        "write Permission denied: 'closed/new'. Nothing was written.",
        "grep Permission denied: 'secret'.",
        "ls Permission denied: 'dark'.",
        "grep fixed:1: old||[2 places could not be read]",
    ], done.stderr
