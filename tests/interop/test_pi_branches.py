"""Branches inside one session file: made by us, seen and continued by pi."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.sessions.compaction import PREAMBLE
from tests.interop.chat_server import say, serve_replies
from tests.interop.pi_scenarios import NEXT_PROMPT, STREAMS
from tests.interop.pi_streams import to_conversation
from tests.interop.programs import Program, build_home, go_on, write_models

SCRIPT = Path(__file__).parent / "session_tree.mjs"


async def branch(root: Path, cwd: Path, *, summarise: bool, back_to: str) -> dict[str, Any]:
    """Say two things, go back to an entry, say a third; what we see of the file then."""
    environment = {"HOME": str(root), "PI_CODING_AGENT_DIR": str(root / "agent"), "RETINUE_NO_LOCAL": "1"}
    request = Request(session=SessionWish("named", str(cwd / "session.jsonl")), tools=("read", "bash"))
    async with Retinue(cwd, model="mock/mock-1", request=request, environment=environment) as crew:
        await crew.prompt("one")
        await crew.prompt("two")
        said = crew.history.list_entries()
        await crew.branching.go(
            next(each["id"] for each in said if back_to in str(each.get("message", {}).get("content"))),
            summarise=summarise,
        )
        await crew.prompt("three")
        tree, leaf = crew.history.build_tree(), crew.history.leaf_id
        parents = {each["id"]: each["parentId"] for each in crew.history.list_entries()}
        way = [leaf]
        while parents[way[-1]] is not None:
            way.append(parents[way[-1]])
        roles = [message.__struct_config__.tag for message in crew.history.list_messages()]
        return {"leaf": leaf, "way": way[::-1], "roots": len(tree), "roles": roles}


def make_branch(root: Path, *, summarise: bool, back_to: str) -> tuple[Path, dict[str, Any]]:
    cwd = build_home(root, STREAMS[0])
    (cwd / "session.jsonl").touch()
    replies = ["One.", "Two.", *(["Notes."] if summarise else []), "Three."]
    with serve_replies([say(text) for text in replies]) as chat:
        write_models(root, STREAMS[0], chat.url)
        return cwd, asyncio.run(branch(root, cwd, summarise=summarise, back_to=back_to))


def ask_pi(pi: Program, file: Path) -> dict[str, Any]:
    manager = Path(pi.command[0]).resolve().parents[1] / "dist" / "core" / "session-manager.js"
    if not manager.is_file():
        manager = next(Path(pi.path).parent.glob("@earendil-works/*/dist/core/session-manager.js"))
    told = subprocess.run([Path(pi.path, "node"), SCRIPT, manager, file], capture_output=True, check=True, timeout=60)
    seen: dict[str, Any] = json.loads(told.stdout)
    return seen


@pytest.mark.interop
@pytest.mark.parametrize("summarise", [False, True], ids=["plain", "summed-up"])
@pytest.mark.parametrize("back_to", ["One.", "one"])
def test_pi_sees_our_branch(pi: Program, tmp_path: Path, summarise: bool, back_to: str) -> None:
    cwd, ours = make_branch(tmp_path, summarise=summarise, back_to=back_to)
    assert ask_pi(pi, cwd / "session.jsonl") == ours


@pytest.mark.interop
def test_pi_continues_our_branch(pi: Program, retinue: Program, tmp_path: Path) -> None:
    cwd, _ = make_branch(tmp_path, summarise=True, back_to="One.")
    said = [
        {"role": "user", "text": "one"},
        {"role": "assistant", "text": "One."},
        {"role": "user", "text": f"<summary>{PREAMBLE}Notes.</summary>"},
        {"role": "user", "text": "three"},
        {"role": "assistant", "text": "Three."},
        {"role": "user", "text": NEXT_PROMPT},
    ]
    assert to_conversation(go_on(pi, STREAMS[0], tmp_path).requests[-1], str(cwd)) == said
    more = [{"role": "assistant", "text": "More."}, {"role": "user", "text": NEXT_PROMPT}]
    assert to_conversation(go_on(retinue, STREAMS[0], tmp_path).requests[-1], str(cwd)) == said + more
