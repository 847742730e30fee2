"""Every example in the documentation runs.

A fenced `console` block is a terminal: each `$ command` is run by bash in a copy of the repository, with the offline
model and an empty home, must succeed (a trailing `# exit N` names another status), and what is printed under it must
appear, line by line, in what it prints (`…` stands for anything). Each begins in the folder where the last one ended. A
`python` block is a program, a `json` block is JSON, and a relative link leads to a file. What is not meant to run is
fenced as `text` or `sh`. `make` is only asked what it would do.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from retinue.cli.options import COMMANDS, FLAGS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
EXIT = re.compile(r"\s+# exit (\d+)$")


class Example(NamedTuple):
    page: str
    line: int
    language: str
    text: str


class Command(NamedTuple):
    text: str
    status: int
    output: list[str]


def find_examples(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    return [Example(name, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in FENCE.finditer(text)]


def parse_console(text: str) -> list[Command]:
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            status = EXIT.search(line)
            commands.append(Command(EXIT.sub("", line[2:]), int(status[1]) if status else 0, []))
        elif line.strip():
            commands[-1].output.append(line)
    return commands


def find_missing(expected: list[str], printed: str) -> list[str]:
    """The expected lines that do not come, in this order, in what was printed."""
    lines, missing = iter(printed.splitlines()), []
    for wanted in expected:
        pieces = [re.escape(piece.strip()) for piece in wanted.split("…")]
        pattern = re.compile(".*".join(pieces))
        if not any(pattern.search(line) for line in lines):
            missing.append(wanted)
            lines = iter(printed.splitlines())
    return missing


EXAMPLES = [example for page in PAGES if page.exists() for example in find_examples(page)]


def pick(language: str) -> list[object]:
    chosen = [example for example in EXAMPLES if example.language == language]
    return [pytest.param(example, id=f"{example.page}:{example.line}") for example in chosen]


class Clone:
    """A copy of the repository as a clone would have it, to be copied again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._facts: list[object] = []

    def link(self, folder: Path) -> None:
        """Make another one of the same files: writing them again would take longer than most examples."""
        if not self._facts or self._facts != self._look():
            # An example has written into a file in place, and so into the file of all.
            shutil.rmtree(self._root, ignore_errors=True)
            self._fill()
            self._facts = self._look()
        shutil.copytree(self._root, folder, copy_function=os.link)

    def _fill(self) -> None:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self._root / name)
        subprocess.run(["git", "init", "-q"], cwd=self._root, check=True)

    def _look(self) -> list[object]:
        files = (Path(folder, name).lstat() for folder, _, names in os.walk(self._root) for name in names)
        return [(file.st_ino, file.st_size, file.st_mtime_ns, file.st_mode) for file in files]


@pytest.fixture(scope="session")
def clone(memory: Path) -> Clone:
    return Clone(memory / "clone" / "retinue")  # beside the folders of tests, for hard links


@pytest.fixture
def project(clone: Clone, tmp_path: Path) -> Iterator[Path]:
    """A copy of the repository that examples may spoil."""
    folder = tmp_path / "retinue"
    clone.link(folder)
    yield folder
    shutil.rmtree(folder)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PI_OFFLINE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, timeout=25, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


# All of them run in `make docs`.
@pytest.mark.sample(6)
@pytest.mark.parametrize("example", pick("console"))
def test_console_example_runs(example: Example, project: Path) -> None:
    place = project.with_name("place")
    place.write_text(f"{project}\n")
    for command in parse_console(example.text):
        text = re.sub(r"^make\b", "make -n", command.text)
        shell = f"trap 'pwd >{place}' EXIT\n{text}"
        done = run(["bash", "-c", shell], Path(place.read_text().removesuffix("\n")))
        expected = [] if text.startswith("make") else command.output
        assert (done.returncode, find_missing(expected, done.stdout)) == (command.status, []), done.stdout


@pytest.mark.sample(6)
@pytest.mark.parametrize("example", pick("python"))
def test_python_example_runs(example: Example, project: Path) -> None:
    done = run([sys.executable, "-W", "error", "-c", example.text], project)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("example", pick("json"))
def test_json_example_is_json(example: Example) -> None:
    json.loads(example.text)


@pytest.mark.parametrize("example", pick("yaml"))
def test_yaml_example_is_yaml(example: Example) -> None:
    assert yaml.safe_load(example.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_languages_are_known() -> None:
    known = {"console", "python", "json", "yaml", "text", "sh", "toml", "ini", "lua"}
    assert {example.language for example in EXAMPLES} - known == set()


def test_agents_file_stays_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()) < 150


def test_wrong_output_is_noticed() -> None:
    printed = "first\nsecond line\nthird\n"
    assert find_missing(["first", "second …", "third"], printed) == []
    assert find_missing(["third", "first", "absent"], printed) == ["first", "absent"]


def test_every_flag_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    flags = {name for key, row in FLAGS.items() for name in (key.split()[-1], row[0]) if name}
    assert {flag for flag in flags if f"`{flag}" not in page} == set()
    assert {name for name in COMMANDS if f"`retinue {name}" not in page} == set()


def test_readme_says_why_on_its_first_screen():
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:42])
    for wanted in ("Claude Code, pi or Codex", "make bench only=peers", "images/agents.svg", "images/timeline.png"):
        assert wanted in first
