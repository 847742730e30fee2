"""A proxy on loopback that adds a header to every request: the conformance suite cannot send a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

HOP = ("transfer-encoding", "content-length", "connection", "keep-alive", "content-encoding")


@asynccontextmanager
async def open_proxy(url: str, headers: dict[str, str]) -> AsyncIterator[str]:
    """Yield the address of the proxy. Host and Origin are passed on, with the server's port instead of the proxy's."""
    theirs = urlsplit(url).netloc

    async def forward(request: web.Request) -> web.StreamResponse:
        given = {key: value.replace(ours, theirs) for key, value in request.headers.items() if key.lower() not in HOP}
        async with client.request(
            request.method, url, headers={**given, **headers}, data=await request.read() or None
        ) as answer:
            kept = [(key, value) for key, value in answer.headers.items() if key.lower() not in HOP]
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60), auto_decompress=False) as client:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ours = f"127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield f"http://{ours}/mcp"
        finally:
            await runner.cleanup()
