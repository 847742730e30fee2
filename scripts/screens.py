"""Draws docs/images: the screens of the terminal UI, agents at work as an animation, and the timeline of an export.

A script plays the model; everything else is real. The pictures refer to no font or host outside. Needs chromium.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

FILM_SIZE, TIMELINE_SIZE = (100, 30), "1100,520"
FRAME_S, MOST_FRAMES, HOLD_FRAMES = 0.5, 40, 6
FILM_PROMPT = "Review the sessions package before the release"
FILM = [
    ("locks", ("lock",), "`lock.py`: a lock of a process that died is **taken over**. Nothing to fix."),
    ("writes", ("log", "scan"), "`log.py:4`: the error of a failed `fsync` is **not reported**."),
    ("reads", ("history", "view", "scan"), "`history.py:2`: a damaged line is skipped **without a warning**."),
    ("tests", ("log", "lock", "view", "history"), "No test covers a **full disk** or a second writer."),
]
SUMMARY = (
    "All four have reported. Before the release:\n\n1. report a failed `fsync` (`log.py:4`)\n"
    "2. warn about damaged lines (`history.py:2`)\n3. add a test for a full disk\n\nThe locks are fine."
)


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


def build_film() -> list[dict[str, Any]]:
    """Four agents that read files for different times, report, and a parent that sums up."""
    asked, told = {"match": {"last_user": "^Review"}}, {"match": {"last_user": "task-notification"}}
    calls = [
        {"name": "Agent", "arguments": {"subagent_type": "Explore", "description": title, "prompt": f"Review {title}"}}
        for title, _, _ in FILM
    ]
    pace = {"chunk_ms": 60, "chunk_chars": 8}
    replies: list[dict[str, Any]] = [
        {**asked, **pace, "text": "Four agents review the package side by side.", "calls": calls},
        {**asked, **pace, "text": "They are at work. I sum up when they have reported."},
        {**told, **pace, "text": SUMMARY},
    ]
    for title, reads, found in FILM:
        match = {"match": {"first_user": f"Review {title}"}}
        files = [{"name": "read", "arguments": {"path": f"src/sessions/{name}.py"}} for name in reads]
        replies += [{**match, "calls": [call], "delay_ms": 700} for call in files]
        replies.append({**match, "text": found, "chunk_ms": 120, "chunk_chars": 10, "delay_ms": 300})
    return replies


@asynccontextmanager
async def play(folder: Path, script: list[dict[str, Any]], size: tuple[int, int]) -> AsyncIterator[tuple[Any, Any]]:
    """Open the UI with the script as its model."""
    from retinue.app import Request
    from retinue.testing import MockServer
    from retinue.ui.app import RetinueApp

    app = RetinueApp(Request(model="local/a-model"))
    async with MockServer(script) as server, app.run_test(size=size) as pilot:
        models = server.models_json(provider="local", model="a-model")
        (folder / "agent" / "models.json").write_text(json.dumps(models), encoding="utf-8")
        while not app.link.is_open:
            await pilot.pause(0.05)
        yield app, pilot


async def say(pilot: Any, text: str) -> None:
    """Type a prompt and send it."""
    for sign in text:
        await pilot.press("space" if sign == " " else sign)
    await pilot.press("enter")


async def film(folder: Path) -> None:
    """Record agents at work, then the timeline of their session."""
    async with play(folder, build_film(), FILM_SIZE) as (app, pilot):
        await say(pilot, FILM_PROMPT)
        frames: list[str] = []
        for _ in range(MOST_FRAMES):
            await pilot.pause(FRAME_S)
            frames.append(clean(app.export_screenshot(title="retinue"), f"f{len(frames)}"))
            runs = app.link.crew.lookout.runs
            if len(runs) == len(FILM) and all(run.status.is_final for run in runs) and not app.link.state.is_busy:
                break
        session = app.link.crew.session_id
    save(animate(frames), "agents.svg")
    photograph(folder, session)


def animate(frames: list[str]) -> str:
    """The frames as one SVG that shows them one after the other; the last one stays longer."""
    box = re.search(r'viewBox="([^"]*)"', frames[0])
    assert box is not None
    total = FRAME_S * (len(frames) + HOLD_FRAMES)
    share, hold = 100 * FRAME_S / total, 100 * FRAME_S * (HOLD_FRAMES + 1) / total
    style = (
        f".frame {{ visibility: hidden; animation: show {total:.1f}s step-end infinite; }}"
        f" .frame:last-child {{ animation-name: hold; }}"
        f" @keyframes show {{ 0% {{ visibility: visible; }} {share:.3f}% {{ visibility: hidden; }} }}"
        f" @keyframes hold {{ 0% {{ visibility: visible; }} {hold:.3f}% {{ visibility: hidden; }} }}"
        " @media (prefers-reduced-motion: reduce) {"
        " .frame { animation: none; } .frame:last-child { visibility: visible; } }"
    )
    groups = [
        f'<g class="frame" style="animation-delay: {at * FRAME_S:.1f}s">{frame}</g>' for at, frame in enumerate(frames)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}"><style>{style}</style>'
    return "\n".join((head, *groups, "</svg>"))


def photograph(folder: Path, session: str) -> None:
    """The top of the exported page, with the timeline, as a browser shows it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("install chromium; it takes the picture of the timeline")
    program, page = Path(sys.executable).parent / "retinue", folder / "session.html"
    subprocess.run([str(program), "export", session, "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
            "--hide-scrollbars", "--force-device-scale-factor=1", f"--window-size={TIMELINE_SIZE}",
            f"--screenshot={IMAGES / 'timeline.png'}", page.as_uri(),
        ],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print((IMAGES / "timeline.png").relative_to(ROOT))


async def draw(folder: Path) -> None:
    """Play it, and take a picture at each place that is worth one."""
    async with play(folder, build_script(), SIZE) as (app, pilot):
        await say(pilot, QUESTION)
        while not has_begun(app):
            await pilot.pause(0.05)
        await pilot.pause(1.5)
        save(clean(app.export_screenshot(title="retinue"), "ui"), "ui.svg")
        app.theme = "retinue-light"
        await pilot.pause(0.3)
        save(clean(app.export_screenshot(title="retinue"), "ui"), "ui-light.svg")
        app.theme = "retinue-dark"
        run = app.link.crew.lookout.runs[0]
        app.view_run(run.id)
        await pilot.pause(2.5)
        save(clean(app.export_screenshot(title="retinue"), "ui"), "ui-viewer.svg")
        await pilot.press("escape")
        await pilot.press("escape")
        await pilot.pause(0.3)


def has_begun(app: Any) -> bool:
    """Whether all agents have said something that one can see."""
    runs = app.link.crew.lookout.runs if app.link.is_open else []
    openings = [app.link.overheard.glimpse(run.id).opening for run in runs]
    return len(openings) == len(JOBS) and all(len(opening) > 60 for opening in openings)


def clean(svg: str, name: str) -> str:
    """A picture that needs nothing from outside, with `name` in its class names."""
    svg = re.sub(r"@font-face\s*{.*?}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = (
        svg.replace("Fira Code, monospace", FONT).replace('"Fira Code"', "monospace").replace("Fira Code", "monospace")
    )
    return re.sub(r"terminal-\d+", name, svg)


def save(svg: str, name: str) -> None:
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
        asyncio.run(film(folder))


if __name__ == "__main__":
    sys.exit(main())
