"""The first hour of a person: a shell in tmux, a new home, a small project, and a provider that plays a script.

Its screens are kept as texts in screens/hour, and some as pictures in docs/images/hour. `SCREENS=renew make test
args=tests/ui/test_first_hour.py` writes both anew. Times, ids and spinners are masked.
"""

import os
import re
import sys
import time
from difflib import unified_diff
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from retinue.testing.process import make_repo
from tests.ui.terminal_world import Tmux, World, call

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS, PICTURES = Path(__file__).parent / "screens" / "hour", ROOT / "docs" / "images" / "hour"
SETTLED_S, WAIT_S = 0.6, 40.0
FONT = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'
MASKS = (
    (r"--session [0-9a-f-]+(?:\n[0-9a-f]+)?", "--session ID"),
    (r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋"),
    (r"\b\d+m \d+s\b|\b\d+(?:\.\d+)? ?s\b", "0.0s"),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27,}|\b(?=[0-9a-f]*\d)[0-9a-f]{17}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:80"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?", "DATE"),
)
CART = """def total(items, rate):
    net = sum(price * count for price, count in items)
    return int(net * (1 + rate))
"""
WRONG_LINE, RIGHT_LINE = "return int(net * (1 + rate))", "return round(net * (1 + rate), 2)"
CHECK = "until [ -e .git/done-$1 ]; do sleep 0.02; done; echo $1: 12 passed\n"
JOBS = (
    ("Explore", "find the callers", "callers", "Two files call `total`: `shop.py` and `bill.py`."),
    ("Explore", "read the tests", "tests", "never said"),
    ("Plan", "plan a price list", "prices", "A price list needs a currency for each entry."),
    ("Explore", "look for other sums", "sums", "No other function adds prices."),
    ("general-purpose", "correct the rounding", "rounding", "`total` now rounds to two digits."),
    ("general-purpose", "clean the build", "build", "I left the build folder as it is."),
)
"""Four wait until they are let go on; two wait for a free place and then ask for approval."""
ASKED = {
    "rounding": call("edit", path="cart.py", edits=[{"oldText": WRONG_LINE, "newText": RIGHT_LINE}]),
    "build": call("bash", command="rm -rf build"),
}


def to(words, **reply):
    return {"match": {"last_user": words}, "usage": {"input": 900, "output": 60, "cacheRead": 4_000}, **reply}


def build_script():
    """A main agent that starts six agents, and what each of them does."""
    spawns = [
        call("Agent", subagent_type=agent, description=title, prompt=f"The job is: {name}.")
        for agent, title, name, _ in JOBS
    ]
    replies = [
        to("^Why are", text="Six agents look at it, each from its own side.", calls=spawns),
        to("^Why are", text="They are at work; I report when they have ended."),
    ]
    for _, _, name, answer in JOBS:
        wait = call("bash", command=f"sh check {name}")
        replies += [to(f"job is: {name}", calls=[ASKED.get(name, wait)]), to(f"job is: {name}", text=answer)]
    return [
        *replies,
        to("only bill", text="Only `bill.py` calls `total`."),
        to("price list", text="`total` cut off the cents. It **rounds** now."),
        to("task-notification", text="Noted."),
        to("^And now", text="Now the bills are right."),
    ]


class Shell(Tmux):
    """A shell; the program is in its path."""

    def build_script(self, words):
        return "PS1='$ ' exec bash --noprofile --norc -i"

    def __enter__(self):
        self.see("$")
        return self


class Hour(World):
    """A home without files of ours, and a shop in it whose bills are wrong."""

    def __init__(self, root, url):
        super().__init__(root)
        self.agent_dir.rmdir()
        self.work = make_repo(self.home / "shop", {"cart.py": CART, "check": CHECK})
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment |= {"ANTHROPIC_BASE_URL": url, "COLORTERM": "truecolor", "PATH": path}
        del self.environment["PI_CODING_AGENT_DIR"]

    def finish(self, name):
        """Let `sh check NAME` end."""
        (self.work / ".git" / f"done-{name}").touch()

    def shell(self, columns, rows):
        return Shell(self, (), columns, rows)


class Album:
    """Compares screens of one size with the texts, or writes them and the pictures."""

    def __init__(self, shell, columns, rows):
        self._shell, self._columns, self._size = shell, columns, f"{columns}x{rows}"

    def keep(self, name, *, picture=False):
        path = TEXTS / f"{name}-{self._size}.txt"
        if os.environ.get("SCREENS") == "renew":
            self._renew(path, PICTURES / f"{name}-{self._size}.svg" if picture else None)
            return
        wanted = path.read_text() if path.exists() else f"there is no {path.name}"
        end_s = time.monotonic() + WAIT_S
        while _level(shown := _mask(self._shell.screen)) != _level(wanted) and time.monotonic() < end_s:
            time.sleep(0.05)
        changes = unified_diff(wanted.splitlines(), shown.splitlines(), path.name, "now", lineterm="")
        assert _level(shown) == _level(wanted), "\n".join([f"{path.name} has changed (SCREENS=renew)", *changes])

    def _renew(self, path, picture):
        shown, since_s = "", time.monotonic()
        while time.monotonic() - since_s < SETTLED_S:
            time.sleep(0.05)
            if (now := _mask(self._shell.screen)) != shown:
                shown, since_s = now, time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shown)
        if picture is not None:
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_text(draw(self._shell.colours, self._columns))


def draw(screen, columns):
    """A screen of the terminal as an SVG that refers to no font or host."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=True)
    svg = console.export_svg(title="retinue", unique_id="hour")
    svg = re.sub(r"@font-face\s*{.*?}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", FONT)


def _mask(screen):
    for pattern, mask in MASKS:
        screen = re.sub(pattern, mask, screen)
    return "".join(f"{line.rstrip()}\n" for line in screen.splitlines())


def _level(screen):
    """A screen without the lengths of its gaps, which depend on what was masked."""
    return re.sub(r" {2,}|─{2,}", "  ", re.sub(r" +[▁-█]$", "", screen, flags=re.MULTILINE))
