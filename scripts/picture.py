"""Records docs/images/demo.svg: the demo as a terminal shows it, run under a pty and drawn by rich.

The picture refers to no font or host outside itself.
"""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS, MAX_LINES = 110, 50, 70
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
QUESTION = "Where are sessions written to disk, and what happens when a write fails?"
FONT = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'


def record(command: list[str], environment: dict[str, str]) -> str:
    """What the command writes to a terminal."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower
    )
    os.close(follower)
    pieces = []
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(leader)
    if process.wait() != 0:
        sys.exit(f"the command failed: {process.returncode}")
    return b"".join(pieces).decode("utf-8", "replace")


def settle(written: str) -> list[str]:
    """The lines that remain on the screen: a carriage return or an upward move writes over what was there."""
    lines, row = [""], 0
    for token in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r\n|\n|\r)", written):
        control = CONTROL.fullmatch(token)
        if token in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            lines[row] = lines[row] and lines[row] + "\r"
        elif control and control[2] == "A":
            row = max(0, row - int(control[1] or 1))
        elif control and control[2] in "KJ":
            lines[row] = "" if lines[row].endswith("\r") else lines[row]
            if control[2] == "J":
                del lines[row + 1 :]
        elif control and control[2] != "m":
            continue
        elif token:
            # A return at the end means that what follows replaces the line.
            lines[row] = token if lines[row].endswith("\r") else lines[row] + token
    return [line.rstrip("\r") for line in lines]


def draw(lines: list[str], title: str) -> str:
    """The lines as an SVG that stands alone."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    svg = console.export_svg(title=title, unique_id="demo")
    svg = re.sub(r"@font-face\s*{.*?}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", FONT)


def main() -> None:
    """Run the demo's question and write the picture."""
    question = sys.argv[1] if len(sys.argv) > 1 else QUESTION
    agent_dir = ROOT / ".cache" / "picture"
    agent_dir.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PI_CODING_AGENT_DIR": str(agent_dir),
        "RETINUE_NO_LOCAL": "1",
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
    }
    program = str(Path(sys.executable).parent / "retinue")
    written = record([program, "-p", "--model", "offline/rules", question], environment)
    lines = [f'\x1b[1;32m$\x1b[0m retinue -p --model offline/rules "{question}"', *settle(written)]
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"… {len(lines) - MAX_LINES + 1} more lines"]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw([line.replace(str(ROOT), "~/retinue") for line in lines], "retinue"), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
