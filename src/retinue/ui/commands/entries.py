"""`/mcp` and `/hooks`: what would be started, and whether it may."""

from typing import TYPE_CHECKING

from retinue.ui.commands.base import Command
from retinue.ui.menus.entries import EntriesMenu
from retinue.ui.screens.backdrop import hold_keys

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def show_servers(app: "RetinueApp", words: str) -> None:
    """The MCP servers."""
    async with hold_keys(app):
        await EntriesMenu(app, "mcp").run()


async def show_hooks(app: "RetinueApp", words: str) -> None:
    """The hooks."""
    async with hold_keys(app):
        await EntriesMenu(app, "hook").run()


MCP = Command("mcp", "MCP servers: which there are, and whether they may be started", show_servers)
HOOKS = Command("hooks", "hooks: which there are, and whether they may be run", show_hooks)
