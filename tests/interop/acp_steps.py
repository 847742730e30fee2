"""Drives an ACP agent with the protocol's Python library: acp_steps.py CWD COMMAND ARGUMENT...

The same steps as acp_steps.mjs; prints one JSON line with what was seen.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from acp import RequestError, embedded_text_resource, image_block, resource_block, spawn_agent_process, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
)


def to_plain(model: Any) -> Any:
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))


class Client:
    def __init__(self) -> None:
        self.seen: dict[str, Any] = {"updates": [], "asked": [], "files": []}
        self.begun = asyncio.Event()

    def on_connect(self, connection: Any) -> None: ...

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        plain = to_plain(update)
        self.seen["updates"].append(plain)
        content = plain.get("content")
        if isinstance(content, dict) and content.get("text") == "slow":
            self.begun.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        kinds = [option.kind for option in options]
        self.seen["asked"].append({"kinds": kinds, "content": to_plain(tool_call)["content"]})
        option = next(each for each in options if each.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def read_text_file(self, path: str, session_id: str, **_: Any) -> ReadTextFileResponse:
        self.seen["files"].append(["read", path])
        return ReadTextFileResponse(content="unsaved\n" if path.endswith("a.txt") else Path(path).read_text())

    async def write_text_file(self, content: str, path: str, session_id: str, **_: Any) -> None:
        self.seen["files"].append(["write", path])
        Path(path).write_text(content)


async def main(cwd: str, command: str, *arguments: str) -> None:
    client = Client()
    seen = client.seen
    options: dict[str, Any] = {"cwd": cwd, "env": dict(os.environ), "use_unstable_protocol": True}
    async with spawn_agent_process(client, command, *arguments, **options) as (agent, _):  # type: ignore[arg-type]
        files = FileSystemCapabilities(read_text_file=True, write_text_file=True)
        hello = await agent.initialize(protocol_version=1, client_capabilities=ClientCapabilities(fs=files))
        assert hello.agent_info is not None
        seen["hello"] = hello.agent_info.name
        opened = await agent.new_session(cwd=cwd, mcp_servers=[])
        session_id = opened.session_id
        assert opened.config_options is not None and opened.modes is not None
        seen["options"] = [each.category for each in opened.config_options]
        seen["modes"] = [each.id for each in opened.modes.available_modes]
        await agent.set_session_mode(session_id=session_id, mode_id="ask")
        notes = resource_block(embedded_text_resource("file:///x/notes.md", "the notes"))
        prompt = [text_block("work"), image_block("iVBORw0KGgo=", "image/png"), notes]
        seen["stop"] = (await agent.prompt(session_id=session_id, prompt=prompt)).stop_reason
        seen["listed"] = [each.session_id for each in (await agent.list_sessions(cwd=cwd)).sessions]
        seen["sessionId"] = session_id
        seen["live"] = len(seen["updates"])
        await agent.load_session(cwd=cwd, session_id=session_id, mcp_servers=[])
        seen["replayed"] = [each["sessionUpdate"] for each in seen["updates"][seen["live"] :]]
        waiting = asyncio.create_task(agent.prompt(session_id=session_id, prompt=[text_block("wait")]))
        await client.begun.wait()
        await agent.cancel(session_id=session_id)
        seen["cancelled"] = (await waiting).stop_reason
        try:
            await agent.resume_session(cwd=cwd, session_id="gone")
        except RequestError as error:
            seen["unknown"] = error.code
        del seen["updates"][seen["live"] :]
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
