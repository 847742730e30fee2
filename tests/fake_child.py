"""A fake child program: records how it was started, then prints, waits and exits as planned."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!/bin/sh
exec {python} -I -S {program} "$@"
"""
_SOURCE = """\
import json, os, signal, sys, time
here = os.path.dirname(os.path.abspath(__file__))
files = {}
for word in sys.argv[1:]:
    name = word[1:] if word.startswith("@") else word
    if os.path.isabs(name) and name.endswith(".md") and os.path.isfile(name):
        with open(name, encoding="utf-8") as file:
            files[name] = [file.read(), oct(os.stat(name).st_mode & 0o777)]
seen = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "files": files, "pid": os.getpid(),
        "stdin": sys.stdin.read()}
with open(os.path.join(here, "starts.jsonl"), "a", encoding="utf-8") as file:
    file.write(json.dumps(seen) + "\\n")
with open(os.path.join(here, "steps.json"), encoding="utf-8") as file:
    plans = json.load(file)
with open(os.path.join(here, "starts.jsonl"), encoding="utf-8") as file:
    count = sum(1 for _ in file)
for step in plans[min(count, len(plans)) - 1]:
    for _ in range(step.get("times", 1)):
        if "record" in step:
            print(json.dumps(step["record"]), flush=step.get("times", 1) == 1)
        elif "text" in step:
            sys.stdout.write(step["text"])
        elif "error" in step:
            sys.stderr.write(step["error"])
            sys.stderr.flush()
        elif "sleep_s" in step:
            sys.stdout.flush()
            time.sleep(step["sleep_s"])
        elif "ignore" in step:
            signal.signal(step["ignore"], signal.SIG_IGN)
        elif "signal" in step:
            sys.stdout.flush()
            os.kill(os.getpid(), step["signal"])
        elif "exit" in step:
            sys.stdout.flush()
            sys.exit(step["exit"])
"""


class FakeChild:
    """A fake program; `path` is its executable."""

    def __init__(self, folder: Path, *steps: dict[str, Any]) -> None:
        """Steps: `record` (object), `text`, `error` (stderr), each `times`; `sleep_s`, `ignore`, `signal`, `exit`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.path = folder / "pi"
        program = folder / "child.py"
        program.write_text(_SOURCE)
        self.path.write_text(_PROGRAM.format(python=shlex.quote(sys.executable), program=shlex.quote(str(program))))
        self.path.chmod(0o755)
        self.plan(steps)

    def plan(self, *plans: Sequence[dict[str, Any]]) -> None:
        """Set the steps of each start in order; the last plan is used for all further starts."""
        (self._folder / "steps.json").write_text(json.dumps(plans))

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Every start so far: `argv`, `env`, `cwd`, `files` (content and mode), `pid`, `stdin`."""
        path = self._folder / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reply(text: str = "", *, stop: str = "stop", calls: Sequence[dict[str, Any]] = (), **fields: Any) -> dict[str, Any]:
    """Return a step that prints the end of an assistant message."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "toolCall", "id": f"c{index}", **call} for index, call in enumerate(calls)]
    message = {
        "role": "assistant",
        "content": content,
        "api": "openai-completions",
        "provider": "mock",
        "model": "mock-1",
        "stopReason": stop,
        "timestamp": 1,
        "usage": {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12, "cost": {"total": 0.5}},
        **fields,
    }
    return {"record": {"type": "message_end", "message": message}}
