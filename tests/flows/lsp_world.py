"""Language servers as small programs that speak the protocol by hand, well or badly, and a tool that asks them."""

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

from retinue.core.tool import ToolContext
from retinue.tools.lsp.pool import LspPool, PoolContext
from retinue.tools.lsp.session import LspBounds
from retinue.tools.lsp.tool import LspTool, Permission

PROGRAM = """
import json, os, sys, time

def send(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    sys.stdout.buffer.flush()

def read():
    size = 0
    while line := sys.stdin.buffer.readline().strip():
        size = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(size)) if size else sys.exit()

def answer(message, result):
    send(id=message["id"], result=result)

def note(text):
    with open(os.environ["HOME"] + "/notes", "a") as file:
        file.write(text + "\\n")

CAN = {"diagnosticProvider": {}}

def place(line, character=0):
    return {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 1}}

def initialize(message):
    answer(message, {"capabilities": CAN})

def ask(message):
    answer(message, [{"uri": message["params"]["textDocument"]["uri"], "range": place(2, 4)}])

def hear(message):
    pass

def shutdown(message):
    answer(message, None)

def leave():
    sys.exit()

#EXTRA#

note("start")
while True:
    message = read()
    method = message.get("method", "")
    if method == "initialize":
        initialize(message)
    elif method == "shutdown":
        shutdown(message)
    elif method == "exit":
        leave()
    elif method and "id" in message:
        ask(message)
    elif method:
        hear(message)
"""
SOURCE = "package a\n\nfunc greet() {}\n"


def write_server(folder: Path, extra: str = "", name: str = "gopls") -> Path:
    """A program of this name; `extra` is Python that changes what it does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n" + PROGRAM.replace("#EXTRA#", dedent(extra)))
    path.chmod(0o755)
    return path


class World:
    """A workspace with a file, a server for it, and the tool."""

    def __init__(self, tmp: Path, extra: str = "", **ground) -> None:
        self.bin = tmp / "bin"
        write_server(self.bin, extra)
        self.work = tmp / "work"
        self.work.mkdir(exist_ok=True)
        self.file = self.work / "a.go"
        self.file.write_text(SOURCE)
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        self.ground = PoolContext(environment, **ground)
        self.notes_file = Path(os.environ["HOME"]) / "notes"

    @property
    def notes(self) -> list[str]:
        return self.notes_file.read_text().splitlines() if self.notes_file.exists() else []

    @asynccontextmanager
    async def open(self, permission: Permission | None = None, **bounds):
        self.pool = LspPool(self.ground, LspBounds(**bounds))
        self.tool = LspTool(lambda: self.pool, permission or Permission())
        try:
            yield self
        finally:
            await self.pool.close()

    async def ask(self, action: str, *, confinement=None, **arguments):
        result = await self.tool.call({"action": action, **arguments}, ToolContext(self.work, confinement=confinement))
        return result.is_error, result.content[0].text, result.details

    async def define(self, **more):
        return await self.ask("definition", **{"file": "a.go", "line": 1, "column": 1, **more})


FOUND = (
    False,
    "action: definition\na.go:3:5",
    {
        "results": [{"file": "a.go", "line": 3, "column": 5, "endLine": 3, "endColumn": 6}],
        "total": 1,
        "truncated": False,
    },
)


def fail(text: str):
    """The result of a failure of the server."""
    return True, text, {"error": {"code": "LSP_SERVER_FAILED", "message": text}}
