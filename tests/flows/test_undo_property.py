"""Ten agents change one tree in place; undo of any one is compared with a model of who changed which line."""

import asyncio
import os
import random
import shutil

import pytest

from retinue.features.checkpoint.records import RunNote
from retinue.features.checkpoint.store import CheckpointStore
from retinue.features.checkpoint.undo import undo_run
from retinue.testing import make_repo

AGENTS = [f"agent{number}" for number in range(10)]
PATHS = ["a.txt", "d/b.txt", "c.bin"]


class Line:
    def __init__(self, text, by=""):
        self.texts = [(by, text)]
        """Who wrote which text, oldest first."""
        self.gone_by = ""

    @property
    def text(self):
        return self.texts[-1][1]


class Model:
    """Files as lists of lines that know who made, changed and removed them."""

    def __init__(self, chance):
        self.chance = chance
        self.number = 0
        self.files = {path: [Line(f"{path} {number}") for number in range(12)] for path in PATHS}
        self.unclear = {}

    def render(self, path):
        return "".join(f"{line.text}\n" for line in self.files[path] if not line.gone_by).encode()

    def change(self, path, agent):
        """Change, insert or remove one line."""
        lines, self.number = self.files[path], self.number + 1
        living = [place for place, line in enumerate(lines) if not line.gone_by]
        place, text = self.chance.choice(living), f"{agent} {self.number}"
        kind = self.chance.choice(("change", "insert", "remove") if len(living) > 4 else ("change", "insert"))
        if kind == "change":
            lines[place].texts.append((agent, text))
        elif kind == "insert":
            lines.insert(place, Line(text, agent))
        else:
            lines[place].gone_by = agent

    def undo(self, path, agent):
        """Return the file without the changes of an agent, or None for a conflict; and whether a refusal is right, too.

        The place of a line that comes back is in doubt if what was beside it has changed as well.
        """
        if agent in self.unclear.get(path, ()):
            return None, False
        kept, doubt, lines = [], False, self.files[path]
        for place, line in enumerate(lines):
            writers = [by for by, _ in line.texts]
            own = max((at for at, by in enumerate(writers) if by == agent), default=-1)
            if own >= 0 and any(by != agent for by in writers[writers.index(agent) :]):
                if line.gone_by != agent and not (line.gone_by and writers[0] == agent):
                    return None, False
                doubt = True
            if line.gone_by and line.gone_by != agent:
                if own > 0 and writers[0] != agent:
                    return None, False  # changed by it, then removed by another
                doubt = doubt or (writers[0] == agent and self._is_touched(lines, place, agent))
                continue
            if line.gone_by == agent:
                doubt = doubt or self._is_touched(lines, place, agent)
            before = [text for by, text in line.texts if by != agent]
            if writers[0] == agent:
                continue
            kept.append(before[-1] if own >= 0 or line.gone_by else line.text)
        return "".join(f"{text}\n" for text in kept).encode(), doubt

    @staticmethod
    def _is_touched(lines, place, agent):
        """Whether another agent changed something next to a line; removed lines are passed over."""
        for step in (-1, 1):
            at = place + step
            while 0 <= at < len(lines):
                line = lines[at]
                if any(by not in ("", agent) for by, _ in line.texts) or line.gone_by not in ("", agent):
                    return True
                if not line.gone_by and len(line.texts) == 1 and line.texts[0][0] == "":
                    break
                at += step
        return False


async def work(model, store, chance):
    """Let the agents change files: through tools, in commands of their own, and in commands at the same time."""
    for _ in range(chance.randint(12, 30)):
        agent, path = chance.choice(AGENTS), chance.choice(PATHS)
        kind = chance.random()
        if kind < 0.6:
            model.change(path, agent)
            store.note_write(agent, os.path.join(store.top, path), model.render(path))
            put(store, model, path)
        elif kind < 0.9:
            await store.take("call", run=agent, opens=f"{agent}/1")
            model.change(path, agent)
            put(store, model, path)
            await store.take("call", run=agent, closes=f"{agent}/1")
        elif kind < 0.95:
            other = chance.choice([each for each in AGENTS if each != agent])
            for each in (agent, other):
                await store.take("call", run=each, opens=f"{each}/1")
            model.change(path, agent)
            put(store, model, path)
            model.unclear.setdefault(path, set()).update((agent, other))
            for each in (agent, other):
                await store.take("call", run=each, closes=f"{each}/1")
        else:
            await store.take("call", run=agent)
            model.change(path, "person")
            put(store, model, path)
            await store.take("call", run=agent)


def put(store, model, path):
    with open(os.path.join(store.top, path), "wb") as file:
        file.write(model.render(path))


def read(folder, path):
    return (folder / path).read_bytes()


async def check(seed, root):
    chance = random.Random(seed)
    model = Model(chance)
    work_dir = root / "work"
    work_dir.mkdir(parents=True)
    make_repo(work_dir, {path: model.render(path).decode() for path in PATHS})
    store = CheckpointStore(work_dir, root / "own")
    for agent in AGENTS:
        store.append(RunNote(at=0, session="s", run=agent, agent=agent))
    await store.take("prompt", run="main")
    await work(model, store, chance)
    await store.take("end", run="main")
    now = {path: read(work_dir, path) for path in PATHS}
    for agent in AGENTS:
        expected = {path: model.undo(path, agent) for path in PATHS}
        report = await undo_run(store, agent)
        found = {path: read(work_dir, path) for path in PATHS}
        conflicts = {path for path, (content, _) in expected.items() if content is None}
        doubts = {path for path, (_, doubt) in expected.items() if doubt}
        assert conflicts <= report.conflicts.keys() <= conflicts | doubts, (seed, agent, report)
        if report.conflicts:
            assert found == now, (seed, agent)
            continue
        assert found == {path: content for path, (content, _) in expected.items()}, (seed, agent, report)
        for path in PATHS:
            (work_dir / path).write_bytes(now[path])
    shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(2))
def test_undo_of_one_of_ten_agents(seed, tmp_path):
    asyncio.run(check(seed, tmp_path / "world"))


@pytest.mark.slow
def test_undo_of_one_of_ten_agents_long(tmp_path):
    for seed in range(1000, 1060):
        asyncio.run(check(seed, tmp_path / "world"))
