"""A program whose words, runs and clock are given, and what a terminal shows of it as a text that people can read.

A text per screen, because a person sees in its diff what has changed; a picture would show only that something has.
`SCREENS=renew make test args=tests/ui/test_screens.py` writes them anew.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from zlib import crc32

from rich.cells import cell_len
from rich.segment import Segment
from textual.widgets import Input, TextArea

from retinue.app import Request
from retinue.core.messages import Message
from retinue.core.run import Run
from retinue.sessions.log import Session
from retinue.settings.request import SessionWish
from retinue.testing import FakeClock
from retinue.ui.app import RetinueApp
from retinue.ui.widgets.status_lines import StatusFooter
from retinue.views.runs import SessionRuns
from tests.ui.pilot_world import Stage

FILES = Path(__file__).parent / "screens"
NOW_MS = 1_767_225_600_000
WAIT_S, SETTLED_S = 20.0, 0.6
SIGNS = ascii_letters + digits
MODELS = {
    "providers": {
        "local": {
            "baseUrl": "http://127.0.0.1:9/v1",
            "api": "openai-completions",
            "apiKey": "none",
            "models": [{"id": "a-model", "contextWindow": 200_000, "reasoning": True}, {"id": "b-model"}],
        }
    }
}


@dataclass(frozen=True, slots=True)
class Look:
    """A size and a theme."""

    columns: int = 100
    rows: int = 30
    theme: str = "dark"

    def __str__(self) -> str:
        return f"{self.columns}x{self.rows}-{self.theme}"


class Screens:
    """Opens the program in a place that is always the same."""

    def __init__(self, home: Path, monkeypatch: Any) -> None:
        self.project = home / "project"
        self._patch = monkeypatch
        self._agent_dir = home / ".pi" / "agent"
        self.project.mkdir()
        self._agent_dir.mkdir(parents=True, exist_ok=True)
        (self._agent_dir / "models.json").write_text(json.dumps(MODELS))
        monkeypatch.chdir(self.project)
        for each in (Input, TextArea):
            monkeypatch.setattr(each.cursor_blink, "_default", False)

    def show_runs(self, runs: Sequence[Run], said: Sequence[Message] = ()) -> None:
        """What the crew does, and what each of its runs has said."""
        for name, value in {
            "runs": list(runs),
            "find": lambda _, run_id: next((run for run in runs if run.id == run_id), None),
            "find_window": lambda _, run_id: 200_000,
            "read_messages": lambda _, run_id: list(said),
        }.items():
            self._patch.setattr(SessionRuns, name, value)

    def forget_models(self) -> None:
        """No provider has a key, as at the first start."""
        (self._agent_dir / "models.json").unlink()

    def hide_runs(self) -> None:
        """Nothing moves below what lies over the main screen, where nothing is laid out anew."""
        (self._agent_dir / "subagents.json").write_text(json.dumps({"widgetMode": "off", "fleetView": False}))

    @asynccontextmanager
    async def open(self, *said: Message, **request: Any) -> AsyncIterator[Stage]:
        """The program in a session in which this was said; its clock stands still."""
        path = self._agent_dir / "sessions" / "said.jsonl"
        clock = FakeClock()
        session = Session.create(cwd=self.project, directory=None, path=path, clock=clock, new_id=lambda: "s-1")
        for message in said:
            session.append_message(message)
        session.close()
        wish = SessionWish("named", str(path)) if said else SessionWish()
        app = RetinueApp(Request(session=wish, **{"model": "local/a-model", "approve": True, **request}))
        app.now_ms = lambda: NOW_MS
        async with app.run_test(size=(100, 30)) as pilot:
            stage = Stage(app, pilot)
            await stage.wait(lambda: len(app.screen_stack) > 1 or app.screen.query_one(StatusFooter).facts.folder)
            await pilot.pause()
            yield stage


async def compare(stage: Stage, name: str, *looks: Look) -> None:
    """Show the screen in some sizes and themes, and compare each with its file."""
    for look in looks:
        stage.app.theme = f"retinue-{look.theme}"
        await stage.pilot.resize_terminal(look.columns, look.rows)
        stage.app.link.touch()
        await _compare_one(stage, FILES / f"{name}-{look}.txt", look)


async def _compare_one(stage: Stage, path: Path, look: Look) -> None:
    if os.environ.get("SCREENS") == "renew":
        path.parent.mkdir(exist_ok=True)
        path.write_text(await _settle(stage, look), encoding="utf-8")
        return
    wanted = path.read_text(encoding="utf-8") if path.exists() else f"there is no {path.name}"
    shown = await _watch(stage, lambda: _level(draw(stage.app)) == _level(wanted) and _has_size(stage, look))
    changes = unified_diff(wanted.splitlines(), shown.splitlines(), path.name, "now", lineterm="")
    assert _level(shown) == _level(wanted), "\n".join([f"{path.name} has changed (SCREENS=renew renews it)", *changes])


def _level(drawn: str) -> str:
    """A screen without the bar at its right edge: how far that is depends on when the last layout was."""
    lines = drawn.split("\n")
    edge = max(len(line) for line in lines if line and not line.strip("─")) - 2
    lines = [re.sub(r"\s+[▁-█\w]$", "", line) if len(line) > edge and ": " not in line else line for line in lines]
    first, last = (at for at, line in enumerate(lines) if len(line) > edge + 1 and not line.strip("─"))
    used = {*"".join(lines[first + 1 : last])}
    return "\n".join(line for line in lines if not re.match(r"\w: #?", line) or line[0] in used)


async def _watch(stage: Stage, is_so: Callable[[], bool]) -> str:
    """What is shown once something is so, or after a while: a busy machine is no reason to fail."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + WAIT_S
    while not is_so() and loop.time() < end_s:
        await stage.pilot.pause(0.03)
    return draw(stage.app)


async def _settle(stage: Stage, look: Look) -> str:
    """What is shown when nothing has changed for a while."""
    loop = asyncio.get_running_loop()
    shown, since_s = "", loop.time()
    while loop.time() - since_s < SETTLED_S or not _has_size(stage, look):
        await stage.pilot.pause(0.03)
        if (now := draw(stage.app)) != shown:
            shown, since_s = now, loop.time()
    return shown


def _has_size(stage: Stage, look: Look) -> bool:
    return stage.app.screen.size == (look.columns, look.rows)


def draw(app: RetinueApp) -> str:
    """The screen: its text, the same places with a letter for each style, and what the letters mean."""
    lines = read_lines(app)
    letters = dict[str, str]()
    texts, styles = list[str](), list[str]()
    for line in lines:
        texts.append("".join(segment.text for segment in line).rstrip())
        styles.append("".join(_find_letter(_name(segment), letters) * cell_len(segment.text) for segment in line))
    width = max(len(style) for style in styles)
    usual = max(set("".join(styles)), key="".join(styles).count)
    legend = sorted(f"{'space' if letter == usual else letter}: {name}" for name, letter in letters.items())
    shown = [style.replace(usual, " ").rstrip() for style in styles]
    return "\n".join([*texts, "─" * width, *shown, "─" * width, *legend, ""])


def read_lines(app: RetinueApp) -> list[list[Segment]]:
    """The lines as they go to the terminal."""
    background = app.screen.styles.background
    lines = []
    for strip in app.screen._compositor.render_strips():
        for each in app.get_line_filters():
            strip = strip.apply_filter(each, background)
        lines.append(list(Segment.simplify(strip)))
    return lines


def _find_letter(name: str, letters: dict[str, str]) -> str:
    """A letter that depends on the style, so that another style in one place leaves all others as they are."""
    if name not in letters:
        start, taken = crc32(name.encode()), set(letters.values())
        signs = (SIGNS[(start + step) % len(SIGNS)] for step in range(len(SIGNS)))
        letters[name] = next((sign for sign in signs if sign not in taken), "?")
    return letters[name]


def _name(segment: Segment) -> str:
    """A style in words: `#c0caf5 on #16161e bold`."""
    style = segment.style
    if style is None:
        return "none"
    marks = [mark for mark in ("bold", "dim", "italic", "underline", "reverse", "strike") if getattr(style, mark)]
    if not segment.text.strip() and "reverse" not in marks and "underline" not in marks:
        return f"on {_hex(style.bgcolor)}"  # nothing is written there
    return " ".join([_hex(style.color), "on", _hex(style.bgcolor), *marks])


def _hex(color: Any) -> str:
    if color is None:
        return "default"
    return color.triplet.hex if color.triplet is not None else color.name
