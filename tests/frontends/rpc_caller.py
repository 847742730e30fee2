"""A program that drives `retinue --mode rpc` over its pipes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from retinue.testing.process import open_cli


class Caller:
    """Sends commands and reads records, one at a time and with what came in between."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []
        self._count = 0

    def write(self, line: str | bytes) -> None:
        self.process.stdin.write(line.encode() if isinstance(line, str) else line)
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def send(self, kind: str, **fields: Any) -> str:
        self._count += 1
        self.write(json.dumps({"id": f"r{self._count}", "type": kind, **fields}))
        return f"r{self._count}"

    def read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        self.seen.append(json.loads(line))
        return self.seen[-1]

    def read_until(self, kind: str, **fields: Any) -> dict[str, Any]:
        while True:
            record = self.read()
            if record["type"] == kind and all(record.get(name) == value for name, value in fields.items()):
                return record

    def read_until_seen(self, kind: str) -> dict[str, Any]:
        """The first record of a kind, which may have come already."""
        return next((record for record in self.seen if record["type"] == kind), None) or self.read_until(kind)

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The answer to a command, without what only repeats the command."""
        answer = self.read_until("response", id=self.send(kind, **fields))
        assert answer["command"] == kind
        return {name: value for name, value in answer.items() if name not in ("id", "type", "command")}

    def get(self, kind: str, **fields: Any) -> Any:
        """The data of an answer that is a success."""
        answer = self.ask(kind, **fields)
        assert answer["success"], answer
        return answer.get("data")

    def say(self, message: str, **fields: Any) -> str:
        """Prompt, wait until it is settled, and return what was answered."""
        self.get("prompt", message=message, **fields)
        self.read_until("agent_settled")
        return self.get("get_last_assistant_text")["text"]

    def close(self) -> int:
        """End it as a caller should; the exit status."""
        self.process.stdin.close()
        self.process.stdin = None
        self.process.communicate(timeout=8)
        return self.process.returncode

    def kill(self, number: signal.Signals) -> tuple[int, str]:
        """End it by a signal; the exit status and what it had to say about that."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=8)
        return self.process.returncode, errors.decode()

    @property
    def kinds(self) -> list[str]:
        return [record["type"] for record in self.seen]


@contextmanager
def call(place, *args: str, replies=({"text": "Hello."},), model: str = "", env=None) -> Iterator[Caller]:
    """A caller of the program in a place, with a script for a model."""
    arguments = ["--mode", "rpc", "--model", model or place.script(*replies), *args]
    with open_cli(arguments, place.work, env, home=place.home, has_stdin=True) as process:
        yield Caller(process)
