"""The program as a server at the other end of pipes, for the clients of other libraries: they need not start it."""

import asyncio
from contextlib import asynccontextmanager
from io import TextIOWrapper

from retinue.testing.process import open_cli


@asynccontextmanager
async def open_streams(place, *arguments):
    """What the program says and what it hears, as asyncio's streams; it ends when its input does."""
    with open_cli(arguments, place.work, home=place.home, has_stdin=True) as process:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            yield reader, writer
        finally:
            writer.close()
            await asyncio.to_thread(process.wait, 10)


@asynccontextmanager
async def open_mcp_client(place, *arguments):
    """The official client, connected."""
    # Here, because importing it takes longer than most tests.
    import anyio
    from mcp import Client
    from mcp.server.stdio import stdio_server

    @asynccontextmanager
    async def open_transport():
        with open_cli(["mcp", *arguments], place.work, home=place.home, has_stdin=True) as process:
            said, heard = (
                anyio.wrap_file(TextIOWrapper(pipe, encoding="utf-8")) for pipe in (process.stdout, process.stdin)
            )
            # Both ends of the transport write messages as lines.
            async with said, stdio_server(said, heard) as streams, heard:
                yield streams

    async with Client(open_transport()) as client:
        yield client
