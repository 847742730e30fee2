"""The programs that `bench.peers` compares: what to install, their settings, and the names of their tools."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.mock import Mock
from bench.workplace import ROOT, Workplace

CACHE, INSTALL_S = ROOT / ".cache" / "peers", 600
BEGIN = "begin-the-comparison"
Json = dict[str, Any]
Start = tuple[list[str], dict[str, str]]


class NotMeasuredError(Exception):
    """Why a program has no figures."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One program and how it is asked to do the work."""

    name: str
    packages: tuple[str, ...]  # of npm; none for retinue
    program: str
    prepare: Callable[["Peer", Workplace, Mock], Start]
    """Write its settings; return its command and variables."""
    spawn: Callable[[int, str], Json] | None
    """The call that starts one subagent of a kind; None if the mock server cannot make it."""
    read: tuple[str, str]  # the tool that reads a file, and its argument
    shell: str = "bash"
    waits: bool = True
    """Whether a call ends with the subagent's result; if not, the program reports results later."""
    gap: str = ""  # why, in that case

    @property
    def folder(self) -> Path:
        return CACHE / self.program

    @property
    def path(self) -> Path:
        return (self.folder / "node_modules" / ".bin" if self.packages else ROOT / ".venv" / "bin") / self.program

    def install(self) -> None:
        """Install it from npm unless this very version is there."""
        stamp, wanted = self.folder / ".ready", " ".join(self.packages)
        if not self.packages or (stamp.exists() and stamp.read_text() == wanted):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "package.json").write_text('{"private": true}\n')
        # pi's extension asks for any pi from 0.80 on; npm would add a second, newer one.
        command = ["npm", "install", "--prefix", str(self.folder), "--no-audit", "--no-fund", "--legacy-peer-deps"]
        try:
            subprocess.run([*command, *self.packages], check=True, capture_output=True, text=True, timeout=INSTALL_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotMeasuredError(f"npm could not install {wanted}: {type(error).__name__}") from error
        stamp.write_text(wanted)


def prepare_retinue(peer: Peer, place: Workplace, mock: Mock) -> Start:
    surface = "dispatch" if peer.waits else "fleet"
    settings = {"maxConcurrent": 1024, "maxSpawnsPerTree": 1024, "surfaces": [surface]}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")
    place.use(mock)
    return [str(peer.path), "-p", "--model", "mock/bench", BEGIN], {}


def keep_runs(peer: Peer, place: Workplace) -> None:
    """Choose the runner that keeps runs over a crash; only retinue has one."""
    if not peer.packages:
        path = place.agent_dir / "subagents.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "runner": "durable"}), encoding="utf-8")


def prepare_pi(peer: Peer, place: Workplace, mock: Mock) -> Start:
    (place.agent_dir / "subagents.json").write_text('{"maxConcurrent": 1024}', encoding="utf-8")
    place.use(mock)
    extension = peer.folder / "node_modules" / "@tintinweb" / "pi-subagents" / "src" / "index.ts"
    command = [str(peer.path), "-p", "--model", "mock/bench", "-e", str(extension), BEGIN]
    return command, {"PI_SKIP_VERSION_CHECK": "1", "PI_OFFLINE": "1"}


def prepare_claude(peer: Peer, place: Workplace, mock: Mock) -> Start:
    limits = ("MAX_CONCURRENT_SUBAGENTS", "MAX_SUBAGENTS_PER_SESSION", "MAX_TOOL_USE_CONCURRENCY")
    seen = {f"CLAUDE_CODE_{name}": "1024" for name in limits}
    seen |= {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{mock.port}", "ANTHROPIC_API_KEY": "bench"}
    # Without IS_SANDBOX, root may not skip the questions about permissions.
    seen |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
    return [str(peer.path), "-p", "--dangerously-skip-permissions", BEGIN], seen


def prepare_codex(peer: Peer, place: Workplace, mock: Mock) -> Start:
    provider = f'name="mock", base_url="{mock.base_url}", env_key="BENCH_KEY", wire_api="responses"'
    settings = f'model = "bench"\nmodel_provider = "mock"\nmodel_providers.mock = {{{provider}}}\n'
    home = place.folder / "home" / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(settings, encoding="utf-8")
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [str(peer.path), "exec", *flags, BEGIN], {"BENCH_KEY": "bench"}


def call_agent(number: int, kind: str, **more: Any) -> Json:
    """The call of a tool `Agent`, which three programs have."""
    title = f"task {number}"
    return {"name": "Agent", "arguments": {"prompt": title, "description": title, "subagent_type": kind, **more}}


def call_dispatch(number: int, kind: str) -> Json:
    """The call of retinue's tool that waits for the subagent; its `explore` only reads."""
    return {"name": "dispatch_agent", "arguments": {"agent": "explore", "prompt": f"task {number}"}}


PI = ("@earendil-works/pi-coding-agent@0.87.1", "@tintinweb/pi-subagents@0.14.1", "node@22")
CLAUDE, CODEX = ("@anthropic-ai/claude-code@2.1.325",), ("@openai/codex@0.166.0",)
NO_CALLS = "its subagent tools are in a namespace, which the mock server does not know"
WAIT = partial(call_agent, run_in_background=False)
PEERS = (
    Peer("retinue, `dispatch_agent` waits", (), "retinue", prepare_retinue, call_dispatch, ("read_file", "path")),
    Peer("retinue, `Agent` reports later", (), "retinue", prepare_retinue, call_agent, ("read", "path"), waits=False),
    Peer("pi, `@tintinweb/pi-subagents` 0.14.1", PI, "pi", prepare_pi, call_agent, ("read", "path")),
    Peer("Claude Code", CLAUDE, "claude", prepare_claude, WAIT, ("Read", "file_path"), shell="Bash"),
    Peer("Codex", CODEX, "codex", prepare_codex, None, ("", ""), gap=NO_CALLS),
)
