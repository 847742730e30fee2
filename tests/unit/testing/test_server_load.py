import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.testing.wire_reader import make_body

CONVERSATIONS, TURNS = 300, 5
API = "anthropic-messages"


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    body = b""
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


async def converse(port: int, number: int) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replies = []
    for turn in range(TURNS):
        path, body = make_body(API, True, turn, f"conversation {number}")
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        replies.append(await read_reply(reader))
    writer.close()
    return replies


def read_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def test_many_conversations_finish(tmp_path: Path) -> None:
    replies: list[dict[str, Any]] = [{"text": f"turn {turn} ends", "delay_ms": 5} for turn in range(TURNS)]
    (tmp_path / "script.json").write_text(json.dumps(replies))
    command = [sys.executable, "-m", "retinue.testing.server", "--script", str(tmp_path / "script.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        port = json.loads(process.stdout.readline())["port"]
        before = read_cpu_s(process.pid)
        heard = await asyncio.gather(*(converse(port, number) for number in range(CONVERSATIONS)))
        spent_us = (read_cpu_s(process.pid) - before) / (CONVERSATIONS * TURNS) * 1e6
        process.stdin.close()
    print(f"server CPU per request: {spent_us:.0f} µs")
    assert all(f"turn {turn} ends".encode() in one[turn] for one in heard for turn in range(TURNS))
    # About 100 µs on a quiet machine; ten times that means that something is encoded anew for each request.
    assert spent_us < 1000
