"""RPC commands that send messages to the main agent, stop it, or run shell commands."""

from typing import Any

from msgspec import UNSET

from retinue.core.amounts import check_task
from retinue.core.errors import UsageError
from retinue.core.messages import TextContent, UserContent
from retinue.serve.rpc.command import Actions, RpcCommand, RpcConnection, name_actions
from retinue.serve.rpc.questions import send_notice

_BEHAVIORS = ("steer", "followUp")


async def prompt(link: RpcConnection, command: RpcCommand) -> Any:
    """Start a run; if one is active, queue the message as `streamingBehavior` says."""
    blocks = command.take_content()
    if await _run_command(link, command):
        return {"disposition": "handled"}
    if link.is_compacting:
        raise UsageError("the context is being compacted; wait for compaction_end and send the prompt again")
    check_task(blocks)
    blocks = _expand(link, blocks)
    if not link.is_busy:
        link.start_prompt(link.crew.prompt(blocks))
        return {"disposition": "started"}
    if command.fields.get("streamingBehavior") is None:
        raise UsageError("the agent is working: set streamingBehavior to steer or followUp to queue the message")
    if command.take_choice("streamingBehavior", _BEHAVIORS) == "steer":
        link.crew.steer(blocks)
    else:
        link.crew.follow_up(blocks)
    return {"disposition": "queued"}


async def steer(link: RpcConnection, command: RpcCommand) -> Any:
    """Queue a message to be delivered before the next reply."""
    link.crew.steer(_take_plain(link, command))
    return {"disposition": "queued"}


async def follow_up(link: RpcConnection, command: RpcCommand) -> Any:
    """Queue a message to be delivered when the run would end."""
    link.crew.follow_up(_take_plain(link, command))
    return {"disposition": "queued"}


async def abort(link: RpcConnection, command: RpcCommand) -> Any:
    """Stop the main agent and its subagents; answered when all are idle."""
    await link.abort()
    return UNSET


async def clear_queue(link: RpcConnection, command: RpcCommand) -> Any:
    """Remove and return the queued messages."""
    steering, follow_up = link.crew.take_back()
    return {"steering": steering, "followUp": follow_up}


async def _run_command(link: RpcConnection, command: RpcCommand) -> bool:
    """Run an extension command if the message is one."""
    text = command.take_text("message")
    name, _, rest = text[1:].partition(" ")
    if not text.startswith("/") or not link.crew.commands.has(name):
        return False
    if shown := await link.crew.commands.run(name, rest.strip()):
        send_notice(link, shown)
    return True


def _take_plain(link: RpcConnection, command: RpcCommand) -> list[UserContent]:
    """The message content. Raises UsageError if it is an extension command, which cannot be queued."""
    blocks, text = command.take_content(), command.take_text("message")
    if text.startswith("/") and link.crew.commands.has(text[1:].partition(" ")[0]):
        raise UsageError(f"{command.type}: an extension's command cannot be queued; send it with prompt")
    check_task(blocks)
    return _expand(link, blocks)


def _expand(link: RpcConnection, blocks: list[UserContent]) -> list[UserContent]:
    first = blocks[0]
    if isinstance(first, TextContent) and first.text.startswith("/"):
        return [TextContent(link.crew.catalogue.expand(first.text)), *blocks[1:]]
    return blocks


async def bash(link: RpcConnection, command: RpcCommand) -> Any:
    """Run a shell command; its output is streamed to the caller and given to the model with the next prompt."""
    exclude = command.take_flag("excludeFromContext") if "excludeFromContext" in command.fields else False
    named = {} if command.id is UNSET else {"id": command.id}

    def tell(delta: str) -> None:
        link.send({"type": "bash_execution_update", **named, "delta": delta})

    return await link.crew.shell.run(command.take_text("command"), tell, exclude=exclude)


async def abort_bash(link: RpcConnection, command: RpcCommand) -> Any:
    """Stop all shell commands of the caller."""
    link.crew.shell.abort()
    return UNSET


ACTIONS: Actions = {
    **name_actions(prompt, steer, follow_up, abort, clear_queue, bash, abort_bash),
    # The slash commands and skills that a prompt may start with.
    "get_commands": lambda link, command: {"commands": link.crew.catalogue.list()},
}
