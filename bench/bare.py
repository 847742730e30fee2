"""The bare client: aiohttp, asyncio and json, and nothing of retinue.

It plays the conversations that an agent would play with the same server: the same system prompt and tools, each tool
call answered by really reading the file, the whole history sent each turn. Prints one JSON object of what it cost.
"""

import argparse
import asyncio
import gc
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]


def read_cpu_s() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read_memory_mb() -> float:
    """Resident memory of this process."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:")) / 1024


class Client:
    """One conversation after another over one connection pool."""

    def __init__(self, http: aiohttp.ClientSession, url: str, opening: Json, *, codec: str) -> None:
        self._http = http
        self._url = url
        self._opening = opening
        self._dumps: Callable[[Any], bytes]
        self._loads: Callable[[str | bytes], Any]
        if codec == "orjson":
            import orjson

            self._dumps, self._loads = orjson.dumps, orjson.loads
        else:
            self._dumps, self._loads = (lambda value: json.dumps(value).encode()), json.loads

    async def converse(self, task: str) -> int:
        """Play one conversation to its end; returns the number of turns."""
        messages: list[Json] = [*self._opening["messages"], {"role": "user", "content": task}]
        turns = 0
        while True:
            turns += 1
            reply = await self._ask(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return turns
            for call in reply["tool_calls"]:
                path = self._loads(call["function"]["arguments"])["path"]
                text = Path(path).read_text(encoding="utf-8")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    async def _ask(self, messages: list[Json]) -> Json:
        body: Json = {**self._opening, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"Content-Type": "application/json", "Authorization": "Bearer bench"}
        async with self._http.post(self._url, data=self._dumps(body), headers=headers) as response:
            response.raise_for_status()
            return await self._read_stream(response)

    async def _read_stream(self, response: aiohttp.ClientResponse) -> Json:
        text: list[str] = []
        calls: dict[int, Json] = {}
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = self._loads(line[6:])
            for choice in chunk["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    text.append(delta["content"])
                for piece in delta.get("tool_calls") or ():
                    call = calls.setdefault(piece["index"], {"type": "function", "function": {"arguments": ""}})
                    call["id"] = piece.get("id") or call.get("id")
                    function = piece.get("function") or {}
                    call["function"]["name"] = function.get("name") or call["function"].get("name")
                    call["function"]["arguments"] += function.get("arguments") or ""
        message: Json = {"role": "assistant", "content": "".join(text) or None}
        if calls:
            message["tool_calls"] = list(calls.values())
        return message


async def play(options: argparse.Namespace) -> Json:
    """Warm up, then play all conversations at once and measure."""
    opening = json.loads(Path(options.opening).read_text(encoding="utf-8"))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        client = Client(http, options.url, opening, codec=options.codec)
        for _ in range(options.warm):
            await client.converse("warm up")
        gc.collect()
        cpu_s, begun_s = read_cpu_s(), time.monotonic()
        turns = await asyncio.gather(*(client.converse(f"task {number}") for number in range(options.conversations)))
        return {
            "turns": sum(turns),
            "cpu_s": read_cpu_s() - cpu_s,
            "span_s": time.monotonic() - begun_s,
            "memory_mb": read_memory_mb(),
        }


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--opening", required=True)
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--codec", choices=("json", "orjson"), default="json")
    print(json.dumps(asyncio.run(play(parser.parse_args()))))


if __name__ == "__main__":
    main()
