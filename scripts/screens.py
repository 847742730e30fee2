"""Draws docs/images/ui*.svg: the real screens, with a script for a model. They refer to no font or host outside."""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
FONT = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'
SIZE = (112, 36)
QUESTION = "Where are sessions written, and what happens when a write fails?"
JOBS = [
    ("Explore", "find the writers", "Look for what writes sessions"),
    ("Explore", "follow the readers", "Look for what reads them back"),
    ("Plan", "plan a test of full disks", "Plan a test for a full disk"),
]
OPENINGS = [
    "Every line goes through `log.py`; nothing else opens the file for writing.",
    "Three modules read sessions back, each for a purpose of its own.",
    "A disk that is full can be played by a small file system in memory.",
]
FOUND = [
    f"### {place}\n\nI read `sessions/{name}.py` and what calls it.\n\n- `{verb}` {what}\n- A failure {end}\n\n"
    for place, name, verb, what, end in (
        ("Writing", "log", "append_message", "writes one line and gives its id back.", "leaves the line out."),
        ("Opening", "scan", "scan_file", "goes through all lines once.", "is repaired where the file was cut."),
        ("Reading", "history", "load_branch", "reads the lines of one branch.", "names the line and goes on."),
        ("Context", "view", "build_context", "leaves out what was summarised.", "cannot happen: it reads no file."),
        ("Locking", "lock", "take_lock", "lets one program write.", "says which program has the session."),
    )
]


def build_script() -> list[dict[str, Any]]:
    """Three agents at work, and a parent that has said what it does."""
    calls = [
        {"name": "Agent", "arguments": {"subagent_type": agent, "description": title, "prompt": task}}
        for agent, title, task in JOBS
    ]
    look = {"name": "bash", "arguments": {"command": "wc -l src/sessions/*.py"}}
    main = [
        {"thinking": "Two searches and a plan can go side by side.", "text": "I look at it from three sides at once."},
        {"text": "Three agents are on it; I tell you as soon as they report. Meanwhile:\n\n1. **Writing**: `log.py`\n"
                 "2. **Reading back**: `scan.py` and `history.py`\n\n"
                 "```python\nsession.append_message(message, sync=True)\n```"},
    ]  # fmt: skip
    main[0]["calls"] = [look, *calls]  # type: ignore[assignment]
    search = {"calls": [{"name": "grep", "arguments": {"pattern": "def append", "path": "src"}}]}
    child = [
        {**reply, "match": {"last_user": task}}
        for (_, _, task), opening in zip(JOBS, OPENINGS, strict=True)
        for reply in (search, {"text": f"{opening}\n\n{''.join(FOUND)}", "chunk_ms": 300, "chunk_chars": 12})
    ]
    asked = {"match": {"last_user": "^Where"}}
    return [*({**reply, **asked} for reply in main), *child]


async def draw(folder: Path) -> None:
    """Play it, and take a picture at each place that is worth one."""
    from retinue.app import Request
    from retinue.testing import MockServer
    from retinue.ui.app import RetinueApp

    app = RetinueApp(Request(model="local/a-model"))
    async with MockServer(build_script()) as server, app.run_test(size=SIZE) as pilot:
        models = server.models_json(provider="local", model="a-model")
        (folder / "agent" / "models.json").write_text(json.dumps(models), encoding="utf-8")
        while not app.link.is_open:
            await pilot.pause(0.05)
        for sign in QUESTION:
            await pilot.press("space" if sign == " " else sign)
        await pilot.press("enter")
        while not has_begun(app):
            await pilot.pause(0.05)
        await pilot.pause(1.5)
        save(app.export_screenshot(title="retinue"), "ui.svg")
        app.theme = "retinue-light"
        await pilot.pause(0.3)
        save(app.export_screenshot(title="retinue"), "ui-light.svg")
        app.theme = "retinue-dark"
        run = app.link.crew.lookout.runs[0]
        app.view_run(run.id)
        await pilot.pause(2.5)
        save(app.export_screenshot(title="retinue"), "ui-viewer.svg")
        await pilot.press("escape")
        await pilot.press("escape")
        await pilot.pause(0.3)


def has_begun(app: Any) -> bool:
    """Whether all agents have said something that one can see."""
    runs = app.link.crew.lookout.runs if app.link.is_open else []
    openings = [app.link.overheard.glimpse(run.id).opening for run in runs]
    return len(openings) == len(JOBS) and all(len(opening) > 60 for opening in openings)


def save(svg: str, name: str) -> None:
    """Write a picture that stands alone."""
    svg = re.sub(r"@font-face\s*{.*?}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = (
        svg.replace("Fira Code, monospace", FONT).replace('"Fira Code"', "monospace").replace("Fira Code", "monospace")
    )
    svg = re.sub(r"terminal-\d+", "ui", svg)
    (IMAGES / name).write_text(svg, encoding="utf-8")
    print((IMAGES / name).relative_to(ROOT))


def main() -> None:
    """Draw all pictures, with nothing of the user's own configuration."""
    with tempfile.TemporaryDirectory(prefix="retinue-") as name:
        folder = Path(name).resolve()
        sources = folder / "project" / "src" / "sessions"
        sources.mkdir(parents=True)
        (folder / "agent").mkdir()
        for lines, module in enumerate(("history", "lock", "log", "scan", "view"), 3):
            (sources / f"{module}.py").write_text(
                "def append_message(message):\n" + "    ...\n" * lines, encoding="utf-8"
            )
        for variable in [each for each in os.environ if each.startswith(("PI_", "RETINUE_"))]:
            del os.environ[variable]
        os.environ |= {"HOME": str(folder), "PI_CODING_AGENT_DIR": str(folder / "agent"), "RETINUE_NO_LOCAL": "1"}
        os.chdir(folder / "project")
        IMAGES.mkdir(parents=True, exist_ok=True)
        asyncio.run(draw(folder))


if __name__ == "__main__":
    sys.exit(main())
