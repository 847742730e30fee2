"""Commands that look at the session and change nothing."""

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from retinue.core.jsonline import encode_json
from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link
from retinue.serve.rpc.models import to_model


async def get_state(link: Link, command: Command) -> Any:
    """How things stand."""
    crew, chronicle, tuning = link.crew, link.crew.chronicle, link.crew.tuning
    state: dict[str, Any] = {
        "model": to_model(crew.selection.model),
        "thinkingLevel": crew.selection.thinking,
        "isStreaming": link.is_busy,
        "isCompacting": link.is_compacting,
        "steeringMode": tuning.steering_mode,
        "followUpMode": tuning.follow_up_mode,
    }
    if chronicle.file is not None:
        state["sessionFile"] = chronicle.file
    state["sessionId"] = chronicle.id
    if chronicle.name:
        state["sessionName"] = chronicle.name
    steering, follow_up = crew.waiting
    return {
        **state,
        "autoCompactionEnabled": tuning.compacts,
        "messageCount": len(chronicle.list_messages()),
        "pendingMessageCount": len(steering) + len(follow_up),
    }


async def get_messages(link: Link, command: Command) -> Any:
    """The conversation."""
    return {"messages": link.crew.chronicle.list_messages()}


async def get_last_assistant_text(link: Link, command: Command) -> Any:
    """What the model said last."""
    return {"text": link.crew.chronicle.find_last_text()}


async def get_session_stats(link: Link, command: Command) -> Any:
    """Figures of the session."""
    return link.crew.chronicle.count()


async def get_fork_messages(link: Link, command: Command) -> Any:
    """Messages from which the session can be forked."""
    return {"messages": link.crew.chronicle.list_prompts()}


async def get_entries(link: Link, command: Command) -> Any:
    """All entries, or those after one."""
    chronicle = link.crew.chronicle
    return {"entries": chronicle.list_entries(command.find_text("since")), "leafId": chronicle.leaf_id}


async def get_tree(link: Link, command: Command) -> Any:
    """All entries below those they hang on."""
    chronicle = link.crew.chronicle
    return {"tree": Raw(b"".join(_render_tree(chronicle.build_tree()))), "leafId": chronicle.leaf_id}


def _render_tree(roots: list[dict[str, Any]]) -> Iterator[bytes]:
    # A conversation is a chain: it nests as deep as it is long, and an encoder that recurses would not get there.
    stack: list[tuple[dict[str, Any] | None, bytes]] = [(None, b"]"), *_plan(roots)]
    yield b"["
    while stack:
        node, text = stack.pop()
        yield text
        if node is None:
            continue
        yield b'{"entry":' + encode_json(node["entry"]) + b',"children":['
        rest = b"".join(
            b"," + encode_json(name) + b":" + encode_json(node[name])
            for name in ("label", "labelTimestamp")
            if name in node
        )
        stack.append((None, b"]" + rest + b"}"))
        stack.extend(_plan(node["children"]))


def _plan(nodes: list[dict[str, Any]]) -> list[tuple[dict[str, Any] | None, bytes]]:
    """Nodes in the order a stack wants them, each with what stands before it."""
    planned: list[tuple[dict[str, Any] | None, bytes]] = [
        (node, b"," if number else b"") for number, node in enumerate(nodes)
    ]
    planned.reverse()
    return planned
