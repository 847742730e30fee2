"""Builds the wheel into dist, installs it into an empty environment outside of this folder, and uses it there.

Usage: wheel.py QUESTION. The question is about this repository. Fails with one line that says what is wrong.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
UV = shutil.which("uv")


def run(command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program and return what it prints; SystemExit if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode:
        raise SystemExit(f"wheel: {' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def build(version: str) -> Path:
    """Build the wheel; returns its path."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    if UV:
        run([UV, "build", "--quiet", "--wheel", "--out-dir", "dist"], ROOT)
    else:
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", "."], ROOT)
    wheel = ROOT / "dist" / f"retinue-{version}-py3-none-any.whl"
    if not wheel.exists():
        raise SystemExit(f"wheel: {wheel} was not built; dist has {[path.name for path in wheel.parent.iterdir()]}")
    return wheel


def check_contents(wheel: Path) -> int:
    """Compare the wheel with the sources, which include prompts, descriptions and catalog.json; returns the count."""
    files = [path for path in (SOURCE / "retinue").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(SOURCE).as_posix() for path in files}
    if missing := sorted(wanted - set(ZipFile(wheel).namelist())):
        raise SystemExit(f"wheel: {len(missing)} files of src are not in {wheel.name}: {', '.join(missing[:5])}")
    return len(wanted)


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment; returns the folder with its programs."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], ROOT)
    python = folder / "bin" / "python"
    if UV:
        run([UV, "pip", "install", "--quiet", "--python", python, wheel], ROOT)
    else:
        run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel], ROOT)
    return folder / "bin"


def use(programs: Path, folder: Path, version: str, question: str) -> None:
    """Ask the installed program; SystemExit if an answer is wrong."""
    work = folder / "work"
    work.mkdir()
    (work / "shop.py").write_text("def charge_card(amount):\n    return amount\n", encoding="utf-8")
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "PI_CODING_AGENT_DIR": str(folder / "agent")}
    environment = {**kept, **home, "PATH": path, "RETINUE_NO_LOCAL": "1"}
    ask = [programs / "retinue", "-p", "--model", "offline/rules", "--no-session"]
    for name, command, wanted in (
        ("place", [programs / "python", "-c", "import retinue; print(retinue.__file__)"], re.escape(str(folder))),
        ("version", [programs / "retinue", "--version"], rf"^retinue {re.escape(version)}$"),
        ("agents", [programs / "retinue", "agents"], r"\bexplorer\b"),
        ("demo", [*ask, "-C", ROOT, question], r"\bsrc/retinue/\S+:\d+"),
        ("prompt", [*ask, "Where is charge_card defined?"], r"\bshop\.py:1\b"),
    ):
        shown = run(command, work, environment)
        if not re.search(wanted, shown, re.MULTILINE):
            raise SystemExit(f"wheel: {name}: expected {wanted} in the output of the installed program:\n{shown}")


def main(question: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    wheel = build(version)
    count = check_contents(wheel)
    with tempfile.TemporaryDirectory(prefix="retinue-wheel-") as name:
        folder = Path(name)
        use(install(wheel, folder / "environment"), folder, version, question)
    print(f"{wheel.relative_to(ROOT)}: {count} files; installed, demo and one prompt answered in an empty environment")


if __name__ == "__main__":
    main(*sys.argv[1:])
