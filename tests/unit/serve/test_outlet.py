import asyncio
import os
import threading

from retinue.serve.outlet import Outlet


async def test_everything_arrives_in_order():
    reader, writer = os.pipe()
    got = []
    thread = threading.Thread(target=lambda: got.append(read_all(reader)))
    outlet = Outlet(writer)
    lines = [f"{n} {'x' * (n % 900)}\n".encode() for n in range(2000)]
    for line in lines[:1000]:
        outlet.write(line)
    thread.start()
    for line in lines[1000:]:
        outlet.write(line)
    await outlet.drain()
    os.close(writer)
    await asyncio.to_thread(thread.join)
    assert got == [b"".join(lines)]


async def test_nothing_is_lost_between_two_threads():
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    lines = []

    def write_between(frame, event, argument):
        # As the event loop may at any moment: between any two lines of the thread's work.
        if frame.f_code.co_name == "_flush" and event == "line" and outlet.is_behind and len(lines) < 40:
            lines.append(b"%d\n" % len(lines))
            outlet.write(lines[-1])
        return write_between

    threading.settrace(write_between)
    try:
        outlet.write(b"x" * 100_000)  # more than a pipe holds, so a thread writes it
        reading = asyncio.ensure_future(asyncio.to_thread(read_all, reader))
        await outlet.drain()
    finally:
        threading.settrace(None)
    os.close(writer)
    assert ((await reading).replace(b"x", b""), len(lines)) == (b"".join(lines), 40)


async def test_slow_reader_does_not_block_the_writer():
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    begun = asyncio.get_running_loop().time()
    outlet.write(b"x" * 500_000)
    assert asyncio.get_running_loop().time() - begun < 0.2
    rest = asyncio.to_thread(read_exactly, reader, 500_000)
    await asyncio.gather(rest, outlet.drain())
    os.close(reader)
    os.close(writer)


async def test_closed_reader_is_told_once():
    reader, writer = os.pipe()
    told = []
    outlet = Outlet(writer, lambda: told.append(1))
    os.close(reader)
    outlet.write(b"a")
    outlet.write(b"b")
    os.close(writer)
    assert (told, outlet.is_closed) == ([1], True)


def read_all(fd):
    pieces = []
    while piece := os.read(fd, 65536):
        pieces.append(piece)
    os.close(fd)
    return b"".join(pieces)


def read_exactly(fd, count):
    while count > 0:
        count -= len(os.read(fd, 65536))
