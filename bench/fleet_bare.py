"""The bare client as a parent with N children: the same requests as a crew's, and nothing of retinue.

The parent's first reply starts the children, its second asks for their results, its third is the answer. Prints one
JSON object of what it cost.
"""

import argparse
import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.bare import Client, Json, read_cpu_s


def read_peak_mb() -> float:
    """The most memory this process has had at once."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


class Parent:
    """One parent; its calls are conversations of their own."""

    def __init__(self, main: Client, child: Client) -> None:
        self._main = main
        self._child = child
        self._children: dict[str, asyncio.Task[int]] = {}

    async def converse(self, opening: list[Json], task: str) -> int:
        """Play to the end; returns the number of turns, the children's included."""
        messages: list[Json] = [*opening, {"role": "user", "content": task}]
        turns = 0
        while True:
            turns += 1
            reply = await self._main._ask(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return turns + sum(task.result() for task in self._children.values())
            for call in reply["tool_calls"]:
                content = await self._answer(call["function"]["name"], json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    async def _answer(self, name: str, arguments: Json) -> str:
        if name == "Agent":
            run_id = f"child{len(self._children):012d}"
            self._children[run_id] = asyncio.ensure_future(self._child.converse(arguments["prompt"]))
            return f"Agent ID: {run_id}"
        return f"{await self._children[arguments['agent_id']]} turns"


async def play(options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, then play."""
    main, child = (json.loads(Path(path).read_text(encoding="utf-8")) for path in (options.main, options.child))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        clients = [Client(http, options.url, opening, codec="json") for opening in (main, child)]
        await clients[1].converse("warm up")
        gc.collect()
        cpu_s, begun_s = read_cpu_s(), time.monotonic()
        turns = await Parent(*clients).converse(main["messages"], "begin")
        span_s = time.monotonic() - begun_s
        return {"turns": turns, "cpu_s": read_cpu_s() - cpu_s, "span_s": span_s, "memory_mb": read_peak_mb()}


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser()
    for name in ("--url", "--main", "--child"):
        parser.add_argument(name, required=True)
    print(json.dumps(asyncio.run(play(parser.parse_args()))))


if __name__ == "__main__":
    main()
