"""Model servers that others wrote, and the real program in front of them."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retinue.testing.process import CliResult, fresh_home, run_cli

HERE = Path(__file__).parent
# Looked for at once: the tests' own environment no longer says where they are.
FOLDERS = {name: os.environ.get(f"RETINUE_{name.upper()}_DIR", "") for name in ("llama", "litellm")}
MASTER_KEY = "sk-interop-0123456789abcdef0123456789abcdef"
PATHS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}


@contextmanager
def open_llama(window: int) -> Iterator[str]:
    """llama.cpp with one slot and a window of so many tokens; its address."""
    folder = Path(FOLDERS["llama"])
    command = [folder / "bin" / "python", HERE / "llama_server.py", folder / "model.gguf", str(window)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@contextmanager
def open_litellm(root: Path, models: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """LiteLLM's proxy with these models; its address."""
    entries = [{"model_name": name, "litellm_params": dict(params)} for name, params in models.items()]
    config = {
        "model_list": entries,
        "general_settings": {"master_key": MASTER_KEY},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    (root / "config.yaml").write_text(json.dumps(config))
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_DOCS": "True"}
    program = Path(FOLDERS["litellm"], "bin", "litellm")
    command = [program, "--config", root / "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(root), **quiet}
    with (root / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_alive(f"{address}/health/liveliness", server)
            yield address
        finally:
            server.terminate()


def wait_until_alive(address: str, server: "subprocess.Popen[bytes]") -> None:
    """Return when the address answers; importing all of LiteLLM takes its time."""
    for _ in range(480):
        assert server.poll() is None, "the server ended while it was starting"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.25)
    raise AssertionError(f"nobody answers at {address}")


class Place:
    """A home with one provider, and a folder to work in."""

    def __init__(self, root: Path, address: str, api: str, model: str, key: str = "none", **fields: Any) -> None:
        entry = {"id": model, "contextWindow": 8192, "maxTokens": 16, **fields}
        provider = {"baseUrl": address + PATHS[api], "api": api, "apiKey": key, "models": [entry]}
        self.home = fresh_home(root, {"providers": {"real": provider}})
        self.model = f"real/{model}"
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        settings = {"retry": {"baseDelayMs": 1, "maxRetries": 1}}
        (self.home / ".pi" / "agent" / "settings.json").write_text(json.dumps(settings))

    def run(self, *args: str, timeout_s: float = 90) -> CliResult:
        """Run the program to its end."""
        return run_cli(["--model", self.model, *args], self.work, home=self.home, timeout_s=timeout_s)


def read_answer(result: CliResult) -> dict[str, Any]:
    """The last message of a run in JSON mode."""
    assert result.status == 0, result.stderr
    answers = [line["message"] for line in result.lines if line["type"] == "message_end"]
    last: dict[str, Any] = answers[-1]
    return last


def read_text(message: Mapping[str, Any]) -> str:
    """The text of a message."""
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")
