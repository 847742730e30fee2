"""Faults T8 to T10 of reading: real files, pipes, devices and links."""

import asyncio
import base64
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.core.tool import Tool, ToolContext
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.tool_world import Call, fail, make_call

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tools() -> dict[str, Tool]:
    return build_tools(ToolOptions())


@pytest.fixture
def call(tools: dict[str, Tool], tmp_path: Path) -> Call:
    return make_call(tools, tmp_path)


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
