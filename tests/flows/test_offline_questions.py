import asyncio
import re
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.messages import AssistantMessage
from retinue.core.run import Reason
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Limits
from retinue.engine.runner import LiveRun
from retinue.models.offline import OfflineModel
from retinue.sessions.log import Session
from retinue.tools.registry import ToolOptions, build_tools
from tests.run_setup import build_setup

FILES = {
    "README.md": """\
# Larder

Larder keeps groceries in order.

## Expiry
Old food is dropped every night.
""",
    "pyproject.toml": """\
[project]
name = "larder"
description = "Keeps groceries in order."
version = "1.2"
dependencies = ["attrs>=23"]

[project.scripts]
larder = "larder.cli:main"
""",
    "Makefile": """\
test: ## run everything
\tpython -m pytest

lint:
\truff check
""",
    "larder/__init__.py": '''\
"""Larder."""
from larder.shelf import Shelf
''',
    "larder/cli.py": '''\
"""The command line."""
from larder.shelf import Shelf


def main():
    shelf = Shelf(limit=3)
    shelf.drop_expired()
    return 0
''',
    "larder/shelf.py": '''\
"""Shelves and what lies on them."""
from larder.store import save_items

DEFAULT_LIMIT = 40


class ShelfFull(Exception):
    """Raised when nothing more fits."""


class Shelf:
    """Holds items up to a limit."""

    def __init__(self, limit=DEFAULT_LIMIT):
        self.items = []
        self.limit = limit

    def put(self, item):
        if len(self.items) >= self.limit:
            raise ShelfFull("the shelf is full")
        self.items.append(item)
        save_items(self.items)

    def drop_expired(self):
        """Remove items whose date has passed."""
        self.items = [item for item in self.items if not item.is_expired()]
        save_items(self.items)
''',
    "larder/store.py": """\
import json


# Write the items to the pantry file, replacing it at once.
def save_items(items, path="pantry.json"):
    with open(path, "w") as file:
        json.dump(items, file)
""",
    "tests/test_shelf.py": """\
from larder.shelf import Shelf


def test_shelf_drops_expired():
    shelf = Shelf()
    shelf.drop_expired()
""",
    "web/cart.ts": """\
import { price } from './price'

/** Adds up what the cart holds. */
export function totalOf(cart: Item[]): number {
  return cart.reduce((sum, item) => sum + price(item), 0)
}

export class CartView {
  render(cart: Item[]) {
    return `${totalOf(cart)}`
  }
}
""",
    "web/price.ts": """\
export const price = (item: Item): number => item.cents / 100
""",
    "server/listen.go": """\
package server

// Listen accepts deliveries until the context ends.
func (s *Server) Listen(addr string) error {
\treturn s.serve(addr)
}

func (s *Server) serve(addr string) error {
\treturn nil
}
""",
    "native/scan.c": """\
#include <stdio.h>

#define MAX_CODE 13

/* Reads one bar code from the scanner. */
static int read_barcode(char *out)
{
    return MAX_CODE;
}
""",
    "native/weigh.rs": """\
/// Weighs one item in grams.
pub fn weigh_item(raw: u32) -> u32 {
    raw / calibration()
}

fn calibration() -> u32 {
    7
}
""",
    "vendor/shelf.py": """\
class Shelf:
    pass
""",
    "package-lock.json": """\
{"name": "shelf"}
""",
}


@pytest.fixture
def larder(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def start(folder: Path, tools=BUILTIN_TOOLS, **setup) -> LiveRun:
    clock = SystemClock()
    session = Session.create(cwd=str(folder), directory=None, clock=clock, new_id=lambda: uuid4().hex)
    setup = {"sections": {"preamble": "Hi."}, "tools": build_tools(ToolOptions(), tools), **setup}
    return LiveRun(build_setup("r1", folder, OfflineModel(), **setup), session, clock=clock)


async def ask(folder: Path, question: str, tools=BUILTIN_TOOLS, **setup) -> str:
    return (await start(folder, tools, **setup).prompt(question)).text


def first_place(answer: str) -> str:
    return re.search(r"`([\w./]+:\d+)`", answer).group(1)


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("Where is Shelf defined?", "larder/shelf.py:11"),
        ("Where are items written to disk?", "larder/store.py:5"),
        ("How does dropping expired items work?", "larder/shelf.py:24"),
        ("Where is the error 'the shelf is full' raised?", "larder/shelf.py:20"),
        ("What is the default limit?", "larder/shelf.py:4"),
        ("How is the total of a cart computed?", "web/cart.ts:4"),
        ("Where does the server listen?", "server/listen.go:4"),
        ("How are bar codes read? See read_barcode", "native/scan.c:6"),
        ("What does weigh_item do?", "native/weigh.rs:2"),
        ("How do I run the tests?", "Makefile:1"),
        ("What dependencies does it have?", "pyproject.toml:5"),
        ("What does this project do?", "pyproject.toml:3"),
        ("Which files are about shelves?", "larder/shelf.py:11"),
        ("Please refactor the Shelf class", "larder/shelf.py:11"),
    ],
)
async def test_answer_begins_with_the_place(larder, question, place):
    answer = await ask(larder, question)

    assert first_place(answer) == place
    assert len(answer.splitlines()) <= 60


async def test_entry_points_are_quoted(larder):
    answer = await ask(larder, "What are the entry points?")

    assert '- `pyproject.toml:7`\n  ```\n  7  [project.scripts]\n  8  larder = "larder.cli:main"\n  ```' in answer


async def test_scripts_of_a_package_are_commands(larder):
    (larder / "package.json").write_text('{\n  "scripts": {\n    "lint": "eslint ."\n  },\n  "main": "cart.js"\n}')

    answer = await ask(larder, "How do I lint it?")

    assert "- `npm run lint`: `eslint .` (`package.json:3`)" in answer


async def test_callers_come_with_their_function(larder):
    answer = await ask(larder, "Who calls save_items?")

    assert "- `larder/shelf.py:22` call in `Shelf.put`: `save_items(self.items)`" in answer
    assert "- `larder/shelf.py:27` call in `Shelf.drop_expired`: `save_items(self.items)`" in answer


async def test_connections_are_followed_one_step(larder):
    answer = await ask(larder, "How does dropping expired items work?")

    assert "`Shelf.drop_expired` calls `save_items` (`larder/store.py:5`)" in answer
    assert "used at `larder/cli.py:7`" in answer


async def test_a_file_is_outlined(larder):
    answer = await ask(larder, "Explain larder/shelf.py")

    assert answer.startswith("`larder/shelf.py`: Shelves and what lies on them.")
    assert "- `larder/shelf.py:11` class" in answer
    assert "`larder/cli.py`" in answer


async def test_a_change_is_declined_plainly(larder):
    assert (await ask(larder, "Fix the limit of the Shelf class")).startswith("I cannot write or change code;")


async def test_two_questions_get_two_answers(larder):
    answer = await ask(larder, "Where is Shelf defined, and who calls save_items?")

    assert [line for line in answer.splitlines() if line.startswith("### ")] == [
        "### Where is Shelf defined? (strong)",
        "### who calls save_items? (strong)",
    ]


async def test_it_reaches_back(larder):
    run = start(larder)
    await run.prompt("Where is save_items defined?")

    assert "used on 3 lines" in (await run.prompt("Who calls it?")).text


@pytest.mark.parametrize("tools", [("grep",), ("grep", "read"), ("grep", "find", "read")])
async def test_fewer_tools_will_do(larder, tools):
    answer = await ask(larder, "Where is class Shelf in shelf.py, in the larder folder?", tools)

    assert first_place(answer) == "larder/shelf.py:11"


@pytest.mark.parametrize("tools", [("bash",), ("read", "ls")])
async def test_a_missing_search_tool_is_said(larder, tools):
    assert (await ask(larder, "Where is Shelf defined?", tools)).startswith("I cannot answer this without the tools")


async def test_turn_limit_gives_what_there_is(larder):
    run = start(larder, limits=Limits(max_turns=1))

    outcome = await run.prompt("Where is Shelf defined?")

    assert (outcome.reason, "`larder/shelf.py:11`" in outcome.text) == (Reason.TURN_LIMIT_WRAPPED, True)


async def test_an_unreadable_place_is_said(tmp_path):
    assert (await ask(tmp_path, "Where is the flux capacitor?")).startswith("I found nothing for “flux”, “capacitor”.")


async def test_replay_gives_the_same_conversation(larder):
    first, second = start(larder), start(larder)

    await asyncio.gather(first.prompt("How is expiry handled?"), second.prompt("How is expiry handled?"))

    spoken = [
        [message.content for message in run.session.context().messages if isinstance(message, AssistantMessage)]
        for run in (first, second)
    ]
    assert spoken[0] == spoken[1]
