"""Draws docs/images: agents at work as an animation, one agent in the viewer, and the timeline of an exported session.

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
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
FONT = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'
SIZE, PAGE_SIZE = (100, 30), "1100,640"
# The last report reaches the parent when the UI has been idle for a moment.
FRAME_S, MOST_FRAMES, REST_FRAMES, HOLD_FRAMES = 0.4, 60, 5, 6
BACKGROUND = "#16161e"
PROMPT = "Review the sessions package before the release"
PRICE = {"input": 3.0, "output": 15.0, "cacheRead": 0.3, "cacheWrite": 3.75}
AGENTS: list[tuple[str, str, list[tuple[str, dict[str, str]]], str, str]] = [
    ("Explore", "check the locks", [("read", {"path": "src/sessions/lock.py"})],
     "`lock.py`: a lock of a process that died is **taken over**. Nothing to fix.",
     "The locks are fine. Three agents are still at work."),
    ("Explore", "check the writes",
     [("grep", {"pattern": "fsync", "path": "src"}), ("read", {"path": "src/sessions/log.py"})],
     "`log.py:4`: the error of a failed `fsync` is **not reported**.",
     "One thing to fix: `log.py:4` hides a failed `fsync`."),
    ("Plan", "plan better reports",
     [("find", {"pattern": "*.py", "path": "src"}), ("read", {"path": "src/sessions/history.py"}),
      ("read", {"path": "src/sessions/view.py"}), ("grep", {"pattern": "scan_file", "path": "src"})],
     "`history.py:2` skips a damaged line **without a warning**. Count them, and say so once.",
     "A second one: damaged lines are skipped in silence. I wait for the tests."),
    ("general-purpose", "run the tests",
     [("bash", {"command": "python3 -m unittest discover -s tests"}), ("read", {"path": "tests/test_log.py"}),
      ("bash", {"command": "python3 -m unittest -v tests.test_log"}), ("read", {"path": "src/sessions/log.py"})],
     "All tests pass. Two are missing:\n\n- a **full disk**\n- a **second writer**, which `lock.py` must refuse",
     "All four have reported. Before the release:\n\n1. report a failed `fsync` (`log.py:4`)\n"
     "2. warn about damaged lines (`history.py:2`)\n3. test a full disk and a second writer\n\nThe locks are fine."),
]  # fmt: skip
SOURCES = {
    "src/sessions/lock.py": "def take_lock(path):\n    ...\n",
    "src/sessions/log.py": "def append_message(file, message):\n    file.write(to_line(message))\n"
    "    with suppress(OSError):\n        os.fsync(file.fileno())\n",
    "src/sessions/scan.py": "def scan_file(path):\n    return [parse(line) for line in path.open()]\n",
    "src/sessions/history.py": "def load_branch(path, leaf):\n"
    "    lines = scan_file(path)\n    return walk(lines, leaf)\n",
    "src/sessions/view.py": "def build_context(branch):\n    return [entry.message for entry in branch]\n",
    "tests/test_log.py": "import time\nimport unittest\n\n\nclass LogTest(unittest.TestCase):\n"
    "    def test_slow_disk(self):\n        time.sleep(1.5)\n",
}


def build_script() -> list[dict[str, Any]]:
    """Four agents that look at files for different times and report, and a parent that sums up."""
    asked = {"match": {"last_user": "^Review"}}
    calls = [
        {"name": "Agent", "arguments": {"subagent_type": kind, "description": title, "prompt": f"Please {title}"}}
        for kind, title, *_ in AGENTS
    ]
    pace = {"chunk_ms": 60, "chunk_chars": 16}
    replies: list[dict[str, Any]] = [
        {**asked, **pace, "text": "Four agents review the package side by side.", "calls": calls, **use(6200, 240)},
        {**asked, **pace, "text": "They are at work. I sum up when they have reported.", **use(6500, 20)},
    ]
    for _, title, tools, found, said in reversed(AGENTS):
        replies.append(
            {"match": {"last_user": f"(?s)task-notification.*{title}"}, **pace, "text": said, **use(7000, 60)}
        )
        match = {"match": {"first_user": f"Please {title}"}}
        for number, (name, arguments) in enumerate(tools):
            call = {"calls": [{"name": name, "arguments": arguments}], "delay_ms": 1200}
            replies.append({**match, **call, **use(3100 + 900 * number, 60)})
        replies.append({**match, "text": found, **pace, "delay_ms": 300, **use(3100 + 900 * len(tools), 120)})
    return replies


def use(read: int, written: int) -> dict[str, Any]:
    """The tokens that a reply reports."""
    return {"usage": {"input": read, "output": written}}


@asynccontextmanager
async def play(folder: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Open the UI with the script as its model, and send the prompt."""
    from retinue.app import Request
    from retinue.testing import MockServer
    from retinue.ui.app import RetinueApp

    async with MockServer(build_script()) as server:
        models = server.models_json(provider="local", model="a-model", cost=PRICE)
        (folder / "agent" / "models.json").write_text(json.dumps(models), encoding="utf-8")
        app = RetinueApp(Request(model="local/a-model"))
        async with app.run_test(size=SIZE) as pilot:
            while not app.link.is_open:
                await pilot.pause(0.05)
            await pilot.press(*("space" if sign == " " else sign for sign in PROMPT), "enter")
            yield app, pilot


async def draw(folder: Path) -> None:
    """Record agents at work, photograph the timeline of their session, then look at one of them."""
    frames: list[str] = []
    async with play(folder) as (app, pilot):
        rest = 0
        while len(frames) < MOST_FRAMES and rest < REST_FRAMES:
            await pilot.pause(FRAME_S)
            frames.append(take(app))
            rest = rest + 1 if is_done(app) else 0
        session = app.link.crew.session_file
    save(animate(frames), "agents.svg")
    photograph(folder, session)
    async with play(folder) as (app, pilot):
        while app.link.state.is_busy or not list_runs(app):
            await pilot.pause(0.05)
        app.view_run(list_runs(app)[-1].id)
        while not list_runs(app)[-1].status.is_final:
            shown = take(app)
            await pilot.pause(FRAME_S)
        await pilot.press("escape")
    save(shown, "ui-viewer.svg")


def list_runs(app: Any) -> list[Any]:
    return list(app.link.crew.session_runs.runs)


def is_done(app: Any) -> bool:
    """Whether all agents have ended, and the parent is idle."""
    runs = list_runs(app)
    return len(runs) == len(AGENTS) and all(run.status.is_final for run in runs) and not app.link.state.is_busy


def take(app: Any) -> str:
    """The screen as a picture that needs nothing from outside."""
    svg = app.export_screenshot(title="retinue")
    svg = re.sub(r"@font-face\s*{.*?}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'"?Fira Code"?(, monospace)?', FONT, svg)
    # Few fonts have this corner.
    return re.sub(r"terminal-(\d+)", "ui", svg).replace("⎿", "└")


def animate(frames: list[str]) -> str:
    """One picture that shows the frames in turn; the last stays longer. A line of several frames is stored once."""
    styles: dict[str, str] = {}
    screens = [split(frame, styles) for frame in frames] + [split(frames[-1], styles)] * HOLD_FRAMES
    spans: dict[tuple[int, int], str] = {}
    lines: list[str] = []
    for versions in zip_longest(*screens, fillvalue=""):
        begin = 0
        for at in range(1, len(versions) + 1):
            if at == len(versions) or versions[at] != versions[begin]:
                name = spans.setdefault((begin, at), f"s{len(spans)}")
                lines.append(f'<g class="{name}">{versions[begin]}</g>' if versions[begin] else "")
                begin = at
    head, _, rest = frames[0].partition("</style>")
    before = re.search(r".*?<g transform=\"translate\(9, 41\)\"[^>]*>", rest, re.DOTALL)
    box = re.search(r"<svg[^>]*>", head)
    assert box is not None and before is not None
    rules = [f".{name} {{ {style} }}" for style, name in styles.items()]
    rules += [
        move(name, begin, end, len(screens)) for (begin, end), name in spans.items() if end - begin < len(screens)
    ]
    font = f"text {{ font-family: {FONT}; font-size: 20px; white-space: pre }}"
    defs = re.sub(r'<clipPath id="ui-line.*?</clipPath>\s*', "", before[0], flags=re.DOTALL)
    defs += f'<rect fill="{BACKGROUND}" width="100%" height="100%"/>'
    return "\n".join((box[0], "<style>", font, *rules, "</style>", defs, *filter(None, lines), "</g></svg>\n"))


def split(frame: str, styles: dict[str, str]) -> list[str]:
    """The lines of a screen, with names of styles that are the same in all frames."""
    own = dict(re.findall(r"\.ui-(r\d+) { (.*?) }", frame))
    lines: list[str] = []
    for fill, x, y, width in re.findall(r'<rect fill="(.*?)" x="(.*?)" y="(.*?)" width="(.*?)"[^>]*crisp', frame):
        row = add_row(lines, float(y) - 1.5)
        if fill != BACKGROUND:
            lines[row] += f'<rect fill="{fill}" x="{x}" y="{y}" width="{width}" height="24.65"/>'
    for style, x, y, length, text in re.findall(
        r'<text class="ui-(r\d+)" x="(.*?)" y="(.*?)" textLength="(.*?)"[^>]*>(.*?)</text>', frame, re.DOTALL
    ):
        row, name = add_row(lines, float(y) - 20), styles.setdefault(own[style], f"c{len(styles)}")
        if text := text.replace("&#160;", "\N{NO-BREAK SPACE}").strip("\n"):
            lines[row] += f'<text class="{name}" x="{x}" y="{y}" textLength="{length}">{text}</text>'
    return lines


def add_row(lines: list[str], top: float) -> int:
    """The row at a height, which is added if it is new."""
    row = round(top / 24.4)
    lines += [""] * (row + 1 - len(lines))
    return row


def move(name: str, begin: int, end: int, total: int) -> str:
    """The rule that shows a line from one frame until another; a reader who wants no motion sees the last frame."""
    steps = [(0, "hidden")] * (begin > 0) + [(begin, "visible")] + [(end, "hidden")] * (end < total)
    frames = " ".join(f"{100 * at / total:.2f}% {{ visibility: {state} }}" for at, state in steps)
    still = "visible" if end == total else "hidden"
    motion = f".{name} {{ animation: {name} {total * FRAME_S:.1f}s step-end infinite }}"
    return (
        f"@keyframes {name} {{ {frames} }} .{name} {{ visibility: {still}; }}"
        f" @media (prefers-reduced-motion: no-preference) {{ {motion} }}"
    )


def photograph(folder: Path, session: Path) -> None:
    """The top of the exported page, with the timeline, as a browser shows it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Install chromium: it takes the picture of the timeline.")
    program, page = Path(sys.executable).parent / "retinue", folder / "session.html"
    subprocess.run([str(program), "export", str(session), "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={PAGE_SIZE}"]
    where = [f"--user-data-dir={folder / 'profile'}", f"--screenshot={IMAGES / 'timeline.png'}", page.as_uri()]
    subprocess.run([chromium, *flags, *where], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print((IMAGES / "timeline.png").relative_to(ROOT))


def save(svg: str, name: str) -> None:
    (IMAGES / name).write_text(svg, encoding="utf-8")
    print((IMAGES / name).relative_to(ROOT))


def main() -> None:
    """Draw all pictures, with nothing of the user's own configuration."""
    with tempfile.TemporaryDirectory(prefix="retinue-") as name:
        folder = Path(name).resolve()
        (folder / "agent").mkdir()
        for path, text in SOURCES.items():
            file = folder / "project" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for variable in [each for each in os.environ if each.startswith(("PI_", "RETINUE_"))]:
            del os.environ[variable]
        os.environ |= {"HOME": str(folder), "PI_CODING_AGENT_DIR": str(folder / "agent"), "RETINUE_NO_LOCAL": "1"}
        os.chdir(folder / "project")
        IMAGES.mkdir(parents=True, exist_ok=True)
        asyncio.run(draw(folder))


if __name__ == "__main__":
    main()
