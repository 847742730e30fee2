"""RPC commands for the session: state, messages, tree, name, export, and switching to another session."""

import asyncio
import os
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import UNSET, Raw

from retinue.core.errors import UsageError
from retinue.core.jsonline import encode_json
from retinue.serve.rpc.command import Actions, RpcCommand, RpcConnection, name_actions
from retinue.serve.rpc.models import to_model

T = TypeVar("T")


async def new_session(link: RpcConnection, command: RpcCommand) -> Any:
    await _go_over(link, link.crew.sessions.begin(command.find_text("parentSession") or None))
    return {"cancelled": False}


async def switch_session(link: RpcConnection, command: RpcCommand) -> Any:
    await _go_over(link, link.crew.sessions.open(command.take_text("sessionPath")))
    return {"cancelled": False}


async def fork(link: RpcConnection, command: RpcCommand) -> Any:
    """Switch to a copy of the session that ends before a user message."""
    text = await _go_over(link, link.crew.sessions.fork(command.take_text("entryId")))
    return {"text": text, "cancelled": False}


async def clone(link: RpcConnection, command: RpcCommand) -> Any:
    """Switch to a copy of the session."""
    await _go_over(link, link.crew.sessions.clone())
    return {"cancelled": False}


async def _go_over(link: RpcConnection, going: Awaitable[T]) -> T:
    """Switch the session; this stops the agent's current work."""
    if link.compacting is not None:
        await link.abort()
    result = await going
    await link.leave_prompt()
    return result


async def set_session_name(link: RpcConnection, command: RpcCommand) -> Any:
    name = command.take_text("name").strip()
    if not name:
        raise UsageError("Session name cannot be empty")
    link.crew.history.rename(name)
    return UNSET


async def export_html(link: RpcConnection, command: RpcCommand) -> Any:
    """Write the session as an HTML file; by default into the working directory."""
    from retinue.views.export.page import export_session

    file = link.crew.history.file
    if file is None:
        raise UsageError("this session is not saved, so it cannot be exported")
    asked = command.find_text("outputPath")
    target = Path(os.getcwd(), asked or f"{Path(file).stem}.html")
    await asyncio.to_thread(export_session, file, target, is_asked=bool(asked))
    return {"path": str(target)}


async def get_state(link: RpcConnection, command: RpcCommand) -> Any:
    crew, history, tuning = link.crew, link.crew.history, link.crew.tuning
    state: dict[str, Any] = {
        "model": to_model(crew.selection.model),
        "thinkingLevel": crew.selection.thinking,
        "isStreaming": link.is_busy,
        "isCompacting": link.is_compacting,
        "steeringMode": tuning.steering_mode,
        "followUpMode": tuning.follow_up_mode,
    }
    if history.file is not None:
        state["sessionFile"] = history.file
    state["sessionId"] = history.id
    if history.name:
        state["sessionName"] = history.name
    steering, follow_up = crew.waiting
    return {
        **state,
        "autoCompactionEnabled": tuning.compacts,
        "messageCount": len(history.list_messages()),
        "pendingMessageCount": len(steering) + len(follow_up),
    }


async def get_entries(link: RpcConnection, command: RpcCommand) -> Any:
    """All entries, or those after `since`."""
    history = link.crew.history
    return {"entries": history.list_entries(command.find_text("since")), "leafId": history.leaf_id}


async def get_tree(link: RpcConnection, command: RpcCommand) -> Any:
    """All entries as a tree."""
    history = link.crew.history
    return {"tree": Raw(b"".join(_render_tree(history.build_tree()))), "leafId": history.leaf_id}


def _render_tree(roots: list[dict[str, Any]]) -> Iterator[bytes]:
    # A conversation is nested as deep as it is long, which is too deep for a recursive encoder.
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
    """Nodes in stack order, each with the separator before it."""
    planned: list[tuple[dict[str, Any] | None, bytes]] = [
        (node, b"," if number else b"") for number, node in enumerate(nodes)
    ]
    planned.reverse()
    return planned


ACTIONS: Actions = {
    **name_actions(get_state, get_entries, get_tree, new_session, switch_session, fork, clone),
    **name_actions(set_session_name, export_html),
    "get_messages": lambda link, command: {"messages": link.crew.history.list_messages()},
    "get_last_assistant_text": lambda link, command: {"text": link.crew.history.find_last_text()},
    "get_session_stats": lambda link, command: link.crew.history.count(),
    # The user messages from which the session can be forked.
    "get_fork_messages": lambda link, command: {"messages": link.crew.history.list_prompts()},
}
