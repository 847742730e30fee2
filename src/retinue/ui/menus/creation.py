"""`/agents` → Create new agent: step by step, or written by an agent and shown before it is saved."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from retinue.app import open_roster
from retinue.ui.menus.base import Menu
from retinue.ui.menus.kinds import accept_file, choose_place
from retinue.ui.screens.panel import WaitScreen
from retinue.ui.screens.picker import PickerRow
from retinue.ui.screens.prompt import TextPage
from retinue.views.agent import write_agent

if TYPE_CHECKING:
    from retinue.app import Roster
    from retinue.ui.app import RetinueApp

_WAYS = (
    PickerRow("manual", "Step by step", "name, description, tools, model, thinking, instructions"),
    PickerRow("agent", "Written by an agent", "describe its purpose; you review the file before it is saved"),
)
_OWN = "\0own"
_TOOLS = (
    PickerRow("", "All builtin tools"),
    PickerRow("read, grep, find, ls", "Read-only", "read, grep, find, ls"),
    PickerRow("none", "None"),
    PickerRow(_OWN, "Custom list", "names separated by commas"),
)


class CreationMenu(Menu):
    """Creates one agent file."""

    def __init__(self, app: "RetinueApp") -> None:
        super().__init__(app)
        self.roster: Roster = open_roster(app.request, lambda text: None)
        self._in_project = False

    async def run(self) -> None:
        """Choose the place and the way, then create the file."""
        while (place := await choose_place(self, self.roster)) is not None:
            self._in_project = place == "project"
            while (way := await self.choose("Create new agent", _WAYS)) is not None:
                is_made = await (self._write_manually() if way == "manual" else self._let_write())
                if is_made:
                    return

    async def _write_manually(self) -> bool:
        """Ask for one field after the other; going back returns to the previous one."""
        answers: dict[str, str] = {}
        steps: list[tuple[str, Callable[[str], Awaitable[str | None]]]] = [
            ("name", self._ask_name),
            ("description", self._ask_description),
            ("tools", self._ask_tools),
            ("model", self._ask_model),
            ("thinking", self._ask_thinking),
            ("prompt", self._ask_prompt),
        ]
        at = 0
        while 0 <= at < len(steps):
            key, step = steps[at]
            answer = await step(answers.get(key, ""))
            if answer is not None:
                answers[key] = answer
            at += 1 if answer is not None else -1
            if at == len(steps) and await self._create(answers):
                return True
            at = min(at, len(steps) - 1)
        return False

    async def _create(self, answers: dict[str, str]) -> bool:
        fields = {key: answers[key] or None for key in ("name", "description", "tools", "model", "thinking")}
        create = self.roster.files.create
        return await self._save(
            partial(create, answers["name"], fields, answers["prompt"], in_project=self._in_project)
        )

    async def _save(self, write: Callable[[], str]) -> bool:
        """Write the file; False if it cannot be written."""
        path = await self.attempt(write)
        if path is not None:
            self.tell(f"created {self.app.shorten(path)}")
            await accept_file(self, self.roster, path)
        return path is not None

    async def _ask_name(self, before: str) -> str | None:
        """Ask until the name is valid."""
        while answer := await self.ask("Name (letters, digits and dashes), such as test-writer", before):
            before = answer.strip()
            if await self.attempt(partial(self._is_free, before)):
                return before
        return None

    def _is_free(self, name: str) -> bool:
        self.roster.files.check_new(name, in_project=self._in_project)
        return True

    async def _ask_description(self, before: str) -> str | None:
        while (answer := await self.ask("When should it be used? One sentence.", before)) is not None:
            if answer.strip():
                return " ".join(answer.split())
            self.tell("the description is missing: say when to use the agent", is_bad=True)
        return None

    async def _ask_tools(self, before: str) -> str | None:
        chosen = await self.choose("Which tools may it use?", _TOOLS, chosen=before)
        if chosen != _OWN:
            return chosen
        answer = await self.ask("Tools, separated by commas, such as read, grep, bash", before)
        names = [name for part in (answer or "").split(",") if (name := part.strip())]
        return None if answer is None else ", ".join(names) or "none"

    async def _ask_model(self, before: str) -> str | None:
        models = self.app.link.crew.selection.list_models()
        rows = [PickerRow("", "Same as the caller"), *(PickerRow(info.ref, info.ref, info.name) for info in models)]
        return await self.choose("Which model?", rows, chosen=before)

    async def _ask_thinking(self, before: str) -> str | None:
        levels = ("off", "minimal", "low", "medium", "high", "xhigh")
        rows = [PickerRow("", "Same as the caller"), *(PickerRow(level, level) for level in levels)]
        return await self.choose("Which thinking level?", rows, chosen=before)

    async def _ask_prompt(self, before: str) -> str | None:
        title = "Instructions: its role, how it works, what it reports"
        while (answer := await self.app.ask(TextPage(title, before))) is not None:
            if answer.strip():
                return answer
            self.tell("the instructions are missing", is_bad=True)
        return None

    async def _let_write(self) -> bool:
        name = await self._ask_name("")
        if name is None:
            return False
        purpose = await self.app.ask(TextPage(f"What is {name} for? An agent writes the file from your description."))
        if purpose is None or not purpose.strip():
            return False
        work = write_agent(self.app.link.crew.spawn, name, purpose)
        text = await self.app.ask(WaitScreen[str]("an agent is writing the file", work))
        while text is not None:
            # A file written by a model is saved only after the user has seen it.
            text = await self.app.ask(TextPage(f"{name}.md: edit it as you like; ctrl+s saves it", text))
            if text is None:
                return False
            if await self._save(partial(self.roster.files.adopt, name, text, in_project=self._in_project)):
                return True
        return False
