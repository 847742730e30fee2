"""Handles the user's input: a slash command, a shell command, or a message to the agent."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import AttemptStarted, Event
from retinue.core.messages import UserContent

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


class UserInput:
    """Takes text from the editor; shows errors as notes in the conversation."""

    def __init__(self, app: "RetinueApp") -> None:
        self._app = app
        self._early: list[str] = []
        """Input from before the agent was ready."""
        self._is_starting = False
        """Whether a prompt was sent to the idle agent that has not started to work on it."""

    def take(self, text: str, *, is_follow_up: bool = False) -> None:
        """Run or send a text."""
        app = self._app
        if not app.link.is_open:
            self._early.append(text)
            return
        try:
            called = app.commands.find(text.strip())
            if called is not None:
                command, words = called
                if command.needs_rest and app.link.crew.is_busy:
                    raise UsageError(f"/{command.name} is available only while the agent is idle; press esc to stop it")
                self.start(command.run(app, words))
            elif text.startswith("!") and text.strip("! \n"):
                app.run_worker(self._guard(self._run_shell(text)), group="shell")
            else:
                self.say(text, is_follow_up=is_follow_up)
        except RetinueError as error:
            app.link.note(str(error), "error")

    async def run_command(self, text: str) -> None:
        """Run a slash command and wait until it has ended."""
        if called := self._app.commands.find(text):
            await self._guard(called[0].run(self._app, called[1]))

    def say(self, text: str, *, is_follow_up: bool = False) -> None:
        """Send a message to the agent; while it works, the message is delivered before its next reply or at its end."""
        text = self._app.link.crew.catalogue.expand(text)
        if "@" in text:
            self._app.run_worker(self._guard(self._say_with(text, is_follow_up=is_follow_up)), group="prompt")
        else:
            self.pass_on(text, is_follow_up=is_follow_up)

    async def _say_with(self, text: str, *, is_follow_up: bool) -> None:
        """Send a message with the images and agents that it mentions."""
        content, problems = await asyncio.to_thread(self._app.link.crew.catalogue.compose, text)
        for problem in problems:
            self._app.link.note(problem, "warning")
        self.pass_on(content, is_follow_up=is_follow_up)

    def pass_on(self, content: str | Sequence[UserContent], *, is_follow_up: bool = False) -> None:
        """Send content unchanged."""
        crew = self._app.link.crew
        if not crew.is_busy and not self._is_starting:
            self._is_starting = True
            self._app.run_worker(self._guard(self._prompt(content)), group="prompt")
        elif is_follow_up or self._is_starting:
            crew.follow_up(content)
        else:
            crew.steer(content)

    async def _prompt(self, content: str | Sequence[UserContent]) -> None:
        crew = self._app.link.crew

        def hear(event: Event) -> None:
            if isinstance(event, AttemptStarted) and event.run_id == crew.run_id:
                self._is_starting = False

        stop_listening = crew.listen(hear)
        try:
            await crew.prompt(content)
        finally:
            stop_listening()
            self._is_starting = False

    def take_early(self) -> None:
        """Handle the input from before the agent was ready."""
        early, self._early = self._early, []
        for text in early:
            self.take(text)

    def start(self, work: Awaitable[None]) -> None:
        """Run the work of a command in the background; its error is shown."""
        self._app.run_worker(self._guard(work), group="command")

    async def _run_shell(self, text: str) -> None:
        is_private = text.startswith("!!")
        command, link = text.lstrip("!").strip(), self._app.link
        talk = link.state.talk
        block = talk.open_command(command, is_private=is_private)

        def show(piece: str) -> None:
            talk.grow_command(block, piece)
            link.version += 1

        link.version += 1
        await link.crew.working_tree.keep_start()
        begun_s = time.monotonic()
        done = await link.crew.shell.run(command, show, exclude=is_private)
        block.exit_code = done.exit_code if isinstance(done.exit_code, int) else None
        block.duration_ms = (time.monotonic() - begun_s) * 1000
        block.touch()
        link.read_branch()
        link.touch()

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except RetinueError as error:
            self._app.link.note(str(error), "error")
