import os

import pytest

from retinue.serve.rpc.lines import Lines


async def read_all(fd, **options):
    return [line async for line in Lines(fd, **options)]


async def test_plain_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "commands"
    path.write_bytes(b"one\r\n\ntwo\xe2\x80\xa8\nthree")
    with path.open("rb") as file:
        assert await read_all(file.fileno()) == [b"one", b"", b"two\xe2\x80\xa8", b"three"]


@pytest.mark.parametrize("cut", range(1, 12))
async def test_line_arrives_in_pieces(cut):
    ours, theirs = os.pipe()
    data = b"one\r\ntwo\n"
    lines = Lines(ours)
    reading = aiter(lines)
    os.write(theirs, data[:cut])
    os.write(theirs, data[cut:])
    os.close(theirs)
    assert [line async for line in reading] == [b"one", b"two"]
    os.close(ours)


async def test_long_line_is_skipped(tmp_path):
    path = tmp_path / "commands"
    path.write_bytes(b"x" * 11 + b"\n" + b"y" * 10 + b"\nz")
    with path.open("rb") as file:
        assert await read_all(file.fileno(), longest=10) == [None, b"y" * 10, b"z"]


async def test_closing_ends_the_reading():
    ours, theirs = os.pipe()
    lines = Lines(ours)
    os.write(theirs, b"one\ntwo")
    seen = []
    async for line in lines:
        seen.append(line)
        lines.close()
    assert seen == [b"one"]
    os.close(ours)
    os.close(theirs)
