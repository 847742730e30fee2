"""All slash commands: built-in ones, then extension commands and skills."""

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError, quote
from retinue.ui.commands import agents, branches, general, model, session
from retinue.ui.commands.base import Run, SlashCommand

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

OWN = (
    general.HELP,
    general.HOTKEYS,
    agents.AGENTS,
    general.TOOLKIT,
    model.MODEL,
    model.THINKING,
    model.SCOPE,
    session.NEW,
    session.RESUME,
    branches.TREE,
    branches.FORK,
    branches.CLONE,
    session.NAME,
    session.SESSION,
    session.COMPACT,
    general.EXPORT,
    general.COPY,
    general.THEME,
    general.TRUST,
    general.MCP,
    general.HOOKS,
    general.QUIT,
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
        if command is None and name == general.TOOLKIT.name:
            raise UsageError("/toolkit is switched off; it needs enabled and commands.enabled: see /agents, Settings")
        if command is None:
            raise UsageError(f"there is no command /{quote(name)[1:-1]}; /help lists all")
        return command, words.strip()

    def _is_off(self, command: SlashCommand) -> bool:
        link = self._app.link
        return command is general.TOOLKIT and link.is_open and not link.crew.commands.has(command.name)


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
