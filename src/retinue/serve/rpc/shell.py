"""Commands that run the caller's own shell commands."""

from typing import Any

from msgspec import UNSET

from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link


async def bash(link: Link, command: Command) -> Any:
    """Run a command; its output is told as it comes, and the model learns of it with the next prompt."""
    exclude = command.take_flag("excludeFromContext") if "excludeFromContext" in command.fields else False
    named = {} if command.id is UNSET else {"id": command.id}

    def tell(delta: str) -> None:
        link.send({"type": "bash_execution_update", **named, "delta": delta})

    return await link.crew.shell.run(command.take_text("command"), tell, exclude=exclude)


async def abort_bash(link: Link, command: Command) -> Any:
    """End all commands of the caller."""
    link.crew.shell.abort()
    return UNSET
