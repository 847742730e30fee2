"""All slash commands: built-in ones, then those of extensions and skills."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retinue.core.errors import UsageError, quote
from retinue.ui.commands import agents, branches, general, login, model, rewind, session, workspace
from retinue.ui.menus.entries import EntriesMenu
from retinue.ui.screens.overlay import hold_keys
from retinue.views.overview import Kind

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

Run = Callable[["RetinueApp", str], Awaitable[None]]
"""Runs a command with the text after its name. May raise RetinueError, which is shown."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    name: str
    help: str
    run: Run
    hint: str = ""
    """Describes the arguments."""
    needs_rest: bool = False
    """Only available while the agent is idle."""


def _list_entries(kind: Kind) -> Run:
    async def run(app: "RetinueApp", words: str) -> None:
        async with hold_keys(app):
            await EntriesMenu(app, kind).run()

    return run


TOOLKIT = SlashCommand(
    "toolkit", "reports on the configuration and on tool activity", general.show_toolkit,
    "agents|doctor|logs|activity|modules|lsp|help",
)  # fmt: skip
OWN = (
    SlashCommand("help", "commands and keys", general.show_help),
    SlashCommand("hotkeys", "all keys", general.show_hotkeys),
    SlashCommand("agents", "running agents, agent types, scheduled jobs, settings", agents.open_agents),
    SlashCommand("settings", "change settings", agents.open_settings),
    TOOLKIT,
    SlashCommand("model", "choose a model", model.choose_model, "[name]"),
    SlashCommand("login", "check and store an API key", login.log_in, "[provider]"),
    SlashCommand("thinking", "choose the thinking level", model.choose_thinking, "[level]"),
    SlashCommand("approvals", "choose which tool calls need your approval", general.choose_approvals, "[mode]"),
    SlashCommand("scoped-models", "choose the models that Ctrl+P cycles through", model.choose_scope),
    SlashCommand("new", "start a new session", session.begin_session, needs_rest=True),
    SlashCommand("clear", "start with an empty context: the same as /new", session.begin_session, needs_rest=True),
    SlashCommand("resume", "resume another session", session.resume_session, "[name|all]", needs_rest=True),
    SlashCommand("tree", "continue from an earlier point of this session", branches.show_tree),
    SlashCommand(
        "rewind",
        "bring files and conversation back to before a prompt",
        rewind.rewind_session,
        "[undo]",
        needs_rest=True,
    ),
    SlashCommand("fork", "copy this session up to one of your messages", branches.fork_session, needs_rest=True),
    SlashCommand("clone", "copy this session and continue in the copy", branches.clone_session, needs_rest=True),
    SlashCommand("name", "name this session", session.name_session, "NAME"),
    SlashCommand("session", "statistics of this session", session.show_session),
    SlashCommand("cost", "tokens and cost of each agent and model", session.show_costs),
    SlashCommand("context", "what fills the context window", workspace.show_context),
    SlashCommand("diff", "what has changed since this session began", workspace.show_diff),
    SlashCommand("land", "see and land the branches of agents", workspace.show_branches),
    SlashCommand("init", "let the agent write or improve AGENTS.md", workspace.write_instructions, "[what to add]"),
    SlashCommand("compact", "summarise the conversation", session.compact_session, "[what to keep]", needs_rest=True),
    SlashCommand("export", "export this session as an HTML file", general.export_session, "[file]"),
    SlashCommand("copy", "copy the last reply", general.copy_reply),
    SlashCommand("theme", "choose a theme", general.choose_theme, "[name]"),
    SlashCommand("trust", "choose whether to use this folder's own configuration", general.decide_trust),
    SlashCommand("mcp", "list and approve MCP servers", _list_entries("mcp")),
    SlashCommand("hooks", "list and approve hooks", _list_entries("hook")),
    SlashCommand("quit", "exit; you are asked if agents are working", general.leave),
)


class SlashCommands:
    """Lists and finds slash commands."""

    def __init__(self, app: "RetinueApp") -> None:
        self._app = app

    def list(self) -> list[SlashCommand]:
        """All commands, built-in ones first, without those that are switched off."""
        found = {command.name: command for command in OWN if not self._is_off(command)}
        if self._app.link.is_open:
            for offer in self._app.link.crew.catalogue.list():
                run = _run_extension(offer.name) if offer.source == "extension" else _run_skill(offer.name)
                found.setdefault(offer.name, SlashCommand(offer.name, offer.description, run, "[words]"))
        return list(found.values())

    def find(self, text: str) -> tuple[SlashCommand, str] | None:
        """The command at the start of a text and its arguments; None if the text is not a command.

        Raises UsageError for an unknown command.
        """
        if not text.startswith("/") or text.startswith("//"):
            return None
        name, _, words = text[1:].partition(" ")
        if not name or "/" in name:
            return None  # a path, not a command
        command = next((each for each in self.list() if each.name == name), None)
        if command is None and name == TOOLKIT.name:
            raise UsageError("/toolkit is switched off; it needs enabled and commands.enabled: see /agents, Settings")
        if command is None:
            raise UsageError(f"unknown command /{quote(name)[1:-1]}; /help lists all commands")
        return command, words.strip()

    def _is_off(self, command: SlashCommand) -> bool:
        link = self._app.link
        return command is TOOLKIT and link.is_open and not link.crew.commands.has(command.name)


def _run_extension(name: str) -> Run:
    async def run(app: "RetinueApp", words: str) -> None:
        answer = await app.link.crew.commands.run(name, words)
        if answer:
            app.link.note(answer)

    return run


def _run_skill(name: str) -> Run:
    async def run(app: "RetinueApp", words: str) -> None:
        app.speech.say(f"/{name} {words}".strip())

    return run
