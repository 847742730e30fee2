"""The program on a screen that is not there, with a scripted model; what tests look at and wait for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from retinue.app import Request
from retinue.core.messages import TextContent, UserMessage
from retinue.ui.app import RetinueApp
from retinue.ui.widgets.editor import Editor

WAIT_S = 40.0
"""Long, because the machine may be busy; what is so is seen at once."""


class Stage:
    """An open program and hands on its keys."""

    def __init__(self, app: RetinueApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def editor(self) -> Editor:
        return self.app.screen_stack[0].query_one(Editor)

    @property
    def prompts(self) -> list[Any]:
        """What the agent was told: words alone as they are, else all there is."""
        messages = self.app.link.crew.history.list_messages()
        contents = [message.content for message in messages if isinstance(message, UserMessage)]
        return [_simplify(content) for content in contents]

    @property
    def notes(self) -> list[str]:
        return [block.text for block in self.app.link.state.talk.blocks if type(block).__name__ == "NoteBlock"]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        await self.press(*("space" if sign == " " else sign for sign in text))

    async def wait(self, is_so: Callable[[], Any]) -> None:
        """Wait until something is so, or fail."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await self.pilot.pause(0.02)

    async def rest(self) -> None:
        """Wait until the agent is done."""
        await self.wait(lambda: not self.app.link.state.is_busy and not self.app.link.crew.is_busy)


def _simplify(content: Any) -> Any:
    is_words = not isinstance(content, str) and len(content) == 1 and isinstance(content[0], TextContent)
    return content[0].text if is_words else content


@asynccontextmanager
async def open_stage(
    folder: Path, *replies: dict[str, Any], size: tuple[int, int] = (100, 30), is_opened: bool = True, **request: Any
) -> AsyncIterator[Stage]:
    """The program in the working directory, whose model plays the replies."""
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": replies}))
    request.setdefault("tools", ("read", "bash"))
    request.setdefault("model", f"scripted/{script}")
    app = RetinueApp(Request(**request))
    async with app.run_test(size=size) as pilot:
        stage = Stage(app, pilot)
        if is_opened:
            await stage.wait(lambda: app.link.is_open)
            await pilot.pause()
        yield stage
