"""Texts for users avoid the words that were replaced by plain ones."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The pattern, and what to write instead.
REPLACED = {
    r"faces?(?! of)": "front end",
    r"berths?|castings?|errands?|purses?|courts?|hearings?|parcels?|musters?|premises|outfit\w*": "the plain noun",
    r"chronicles?|lookouts?|corrals?|overheard": "history, runs, control group",
    r"crews?": "agents, subagents",
    r"turn(s|ed)? through": "cycle through",
    r"mend(s|ed|ing)?": "fix, repair",
    r"at rest": "idle",
    r"tak(en|es|e) up(?! to)|took up": "resumed",
    r"(goes|went|gone|go) on(?! and)": "continues",
    r"is told|are told|told:|nobody speaks": "is notified",
    r"(?<!there )(?<!There )is no \w+(?=[;,.:]| here)": "unknown …; choose one of",
    r"enter takes|esc leaves": "enter: select · esc: cancel",
    r"is warned of|are warned of": "you are warned about",
    r"given up after": "gave up after",
    r"forbids? to": "cannot … with",
    r"answered (a|the) (decision|modified\w+)": "returned",
    r"(is|are) (no schedule|written together)|runs forwards|beyond the calendar|without blanks": "the format",
    r"work on until|work already|which calls you are asked about": "keep working; already running; approval",
    r"(?<=it )is about (the system|keys|secrets)\w*": "it accesses",
    r"save nothing|is none of": "what happens instead",
}
WORDS = re.compile(
    r"(?<![\w./-])(" + "|".join(f"(?:{pattern})" for pattern in REPLACED) + r")(?![\w/-])", re.IGNORECASE
)
# Names that are stored, on the wire, or part of the Python examples.
NAMES = re.compile(r"`[^`]*`|retinue\.crew|\bas crew\b|\bcrew[.=]|\"face\"|'face'")

SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE retinue|DELETE FROM|CREATE TABLE|RETURNING|WHERE)\b")


def find_words(text: str) -> Iterator[str]:
    yield from (found.group() for found in WORDS.finditer(NAMES.sub("", text)))


def list_messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a source file that contain a space, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if " " in node.value.strip() and not SQL.search(node.value):
            yield node.lineno, node.value


@pytest.mark.parametrize("package", sorted(path.name for path in (ROOT / "src/retinue").iterdir() if path.is_dir()))
def test_messages_use_plain_words(package: str) -> None:
    files = sorted((ROOT / "src" / "retinue" / package).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r} in {text[:80]!r}"
        for path in files
        for line, text in list_messages(path)
        for word in find_words(text)
    ]
    assert not found, "\n".join(found)


def list_pages() -> list[Path]:
    prompts = (ROOT / "src").rglob("*.md")
    return sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *prompts])


def test_documentation_uses_plain_words() -> None:
    found = []
    for path in list_pages():
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [f"{path.relative_to(ROOT)}: {word!r}" for word in find_words(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["'x' is no theme; there are: a", "the crew waits", "enter takes", "the run goes on"])
def test_replaced_words_are_found(text: str) -> None:
    assert list(find_words(text))


@pytest.mark.parametrize("text", ["`crew`", "async with Retinue() as crew", "crew.run()", "interface", "surface"])
def test_names_are_not_words(text: str) -> None:
    assert not list(find_words(text))
