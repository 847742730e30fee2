"""Servers on this machine that play the web, names that stand for them, and canaries that must not be heard."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.core.tool import ToolContext, ToolResult
from retinue.tools.convert.convert import ConvertContentTool
from retinue.tools.convert.options import ConvertOptions, ConvertPorts
from retinue.tools.outbound.request import RequestReach
from retinue.tools.process_tree import TreeProbe
from retinue.tools.registry import build_family
from retinue.tools.web.options import WebOptions, WebPorts
from retinue.tools.web.session import WebSession

PUBLIC = "93.184.216.34"
OTHER = "2606:2800:220:1:248:1893:25c8:1946"
Answer = bytes | Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Asked:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Site:
    """A web server that answers from a table, and remembers."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    busy: int = 0
    most: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked = Asked(head[0], headers, body)
            self.asked.append(asked)
            answer = self.answers.get(asked.path.partition("?")[0], reply(b"nothing here", status=404))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(asked, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.busy -= 1
            writer.close()


def reply(body: bytes | str, kind: str = "text/html", *, status: int = 200, **headers: str) -> bytes:
    """A whole answer as bytes."""
    data = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode("latin-1") + data


def redirect(location: str, status: int = 302) -> bytes:
    return reply(b"", status=status, Location=location)


class World:
    """A site behind public names, tools that reach it, and what they were answered."""

    def __init__(self, site: Site, root: Path) -> None:
        self.site = site
        self.root = root
        self.names: dict[str, list[str]] = {"public.test": [PUBLIC]}
        self.looked_up: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.loaded: Sequence[Any] = ()
        self.environment: dict[str, str] = {"PATH": os.environ["PATH"]}

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        found = self.names.get(host)
        if found is None:
            raise OSError(-2, "Name or service not known")
        return found

    def locate(self, address: str, port: int) -> tuple[str, int]:
        assert address in (PUBLIC, OTHER), f"{address} was to be connected to"
        return "127.0.0.1", self.site.port

    def build(self, options: WebOptions | None = None) -> dict[str, Any]:
        ports = WebPorts(
            environment=self.environment,
            resolve=self.resolve,
            locate=self.locate,
            keep=self.records.append,
            load=lambda: self.loaded,
        )
        return build_family("web", WebSession(options or WebOptions(), ports))

    def build_convert(self, **options: Any) -> ConvertContentTool:
        ports = ConvertPorts(
            environment=self.environment, resolve=self.resolve, locate=self.locate, trees=TreeProbe(kind="plain")
        )
        return ConvertContentTool(ConvertOptions(**options), ports)

    async def call(self, name: str, options: WebOptions | None = None, **arguments: Any) -> dict[str, Any]:
        return read(await self.build(options)[name].call(arguments, ToolContext(self.root)))

    async def fetch(self, url: str, options: WebOptions | None = None) -> dict[str, Any]:
        """The only page of an answer, or its error."""
        found = await self.call("fetch_content", options, url=url)
        return found["error"] if "error" in found else found["results"][0]

    async def convert(self, confinement: Any = None, *, options: dict[str, Any] | None = None, **arguments: Any) -> Any:
        tool = self.build_convert(**(options or {}))
        found = read(await tool.call(arguments, ToolContext(self.root, confinement=confinement)))
        return found.get("error", found)

    def url(self, path: str = "/") -> str:
        return f"http://public.test{path}"

    def local(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.site.port}{path}"


def read(result: ToolResult) -> dict[str, Any]:
    """The details, which are what the model reads."""
    assert json.loads(result.content[0].text) == result.details
    assert result.is_error == ("error" in result.details)
    return dict(result.details)


PRIVATE = WebOptions(reach=RequestReach(private=True))


@asynccontextmanager
async def open_world(root: Path, **answers: Answer) -> AsyncIterator[World]:
    """A world whose site answers `/name` with what is given as `name`."""
    site = Site({f"/{name.replace('__', '/')}": answer for name, answer in answers.items()})
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield World(site, root)
    finally:
        server.close()


@asynccontextmanager
async def open_canaries() -> AsyncIterator[tuple[int, list[str]]]:
    """Listeners on all loopback addresses, one port, and what connected to them."""
    heard: list[str] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(str(writer.get_extra_info("sockname")))
        writer.write(reply("the canary"))
        writer.close()

    async with AsyncExitStack() as stack:
        port = 0
        for host in ("127.0.0.1", "127.0.0.2", "::1"):
            server = await asyncio.start_server(hear, host, port)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
        yield port, heard
