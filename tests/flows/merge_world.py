"""A repository with branches of scripted agents, and merge queues on it that are killed.

As a program it runs one queue after the other in forked processes, until one has ended: SIGKILL comes before or after a
random write to the journal or a random git command.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.core.merge_report import MergeReport, describe_report
from retinue.features.merges import journal as journals
from retinue.features.merges.journal import hold_queue
from retinue.features.merges.queue import Authors, MergeQueue, Verdict
from retinue.features.merges.target import MergeTarget, open_target

AGENTS = 20


def git(repo: Path, *words: str, text: str | None = None) -> str:
    done = subprocess.run(["git", "-C", str(repo), *words], input=text, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


@dataclass
class Script:
    """What the branches of one seed do."""

    files: dict[str, dict[str, str]] = field(default_factory=dict)
    """Content of the files that each branch changes."""
    broken: set[str] = field(default_factory=set)
    textual: list[tuple[str, str]] = field(default_factory=list)
    semantic: list[tuple[str, str]] = field(default_factory=list)
    flaky: str = ""

    @property
    def landing(self) -> list[str]:
        """The model: in order, all that neither is broken nor conflicts with what has landed."""
        landed: list[str] = []
        for name in self.files:
            rivals = {a if name == b else b for a, b in self.textual + self.semantic if name in (a, b)}
            if name not in self.broken and not rivals & set(landed):
                landed.append(name)
        return landed


def write_script(seed: int, count: int = AGENTS) -> Script:
    chance = random.Random(seed)
    names = [f"pi-agent-{seed}-{number}" for number in range(count)]
    script = Script({name: {f"own/{name}.txt": f"{name}\n"} for name in names})
    for number in range(chance.randint(0, 3)):
        one, other = sorted(chance.sample(names, 2), key=names.index)
        script.textual.append((one, other))
        script.files[one][f"shared/{number}.txt"] = f"a\n{one}\nc\n"
        script.files[other][f"shared/{number}.txt"] = f"a\n{other}\nc\n"
    for number in range(chance.randint(0, 3)):
        one, other = sorted(chance.sample(names, 2), key=names.index)
        script.semantic.append((one, other))
        script.files[one][f"meaning/{number}.one"] = "x\n"
        script.files[other][f"meaning/{number}.two"] = "x\n"
    script.broken = set(chance.sample(names, chance.randint(0, 2)))
    for name in script.broken:
        script.files[name][f"broken/{name}"] = "x\n"
    if chance.random() < 0.6:
        script.flaky = chance.choice(names)
        script.files[script.flaky]["flaky/test"] = "x\n"
    return script


def make_repository(repo: Path, branches: Mapping[str, Mapping[str, str]], base: Mapping[str, str]) -> None:
    """Create a repository with main checked out, and a branch of one commit per entry."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True)
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    stream = ""
    for mark, (name, files) in enumerate({"main": base, **branches}.items(), 1):
        stream += (
            f"commit refs/heads/{name}\nmark :{mark}\ncommitter Ada <ada@example.org> {1_700_000_000 + mark} +0000\n"
        )
        stream += f"data {len(name)}\n{name}\n" + ("" if mark == 1 else "from :1\n")
        for path, content in files.items():
            stream += f"M 100644 inline {path}\ndata {len(content)}\n{content}\n"
    git(repo, "fast-import", "--quiet", text=stream)
    git(repo, "reset", "-q", "--hard")


BASE = {"README.md": "A program.\n", **{f"shared/{number}.txt": "a\nb\nc\n" for number in range(3)}}


def judge_paths(paths: Sequence[str]) -> str:
    """Return what the check of a tree says apart from chance: empty if it passes."""
    broken = [path for path in paths if path.startswith("broken/")]
    meanings = {path.partition(".")[0] for path in paths if path.endswith(".one")}
    both = [path for path in paths if path.endswith(".two") and path.partition(".")[0] in meanings]
    return " ".join(broken + both)


@dataclass
class Desk:
    """Runs queues on one repository, with a check that is told by file names and counted in a log."""

    repo: Path
    home: Path
    authors: Authors | None = None
    max_attempts: int = 0
    seed: int = 0

    async def land(self, *branches: str, verify: bool = True, is_dry: bool = False) -> MergeReport:
        target = await open_target(self.repo, "main")
        async with hold_queue(self.home, target.common, "test") as (journal, lock):
            target = MergeTarget(target.top, target.common, target.name, target.guard, (lock,))
            check = self.check if verify else None
            queue = MergeQueue(
                target,
                journal,
                check=check,
                commands=("check",),
                authors=self.authors,
                max_attempts=self.max_attempts,
                is_dry=is_dry,
            )
            return await queue.run(branches)

    async def check(self, commit: str) -> Verdict:
        paths = git(self.repo, "ls-tree", "-r", "--name-only", commit).splitlines()
        tree = git(self.repo, "rev-parse", f"{commit}^{{tree}}")
        problem = judge_paths(paths)
        before = [line for line in self.read_log() if line[0] == tree]
        # At most one of three checks of a tree fails by chance.
        if "flaky/test" in paths and random.Random(f"{self.seed}{tree}").randrange(4) == len(before):
            problem = problem or "chance"
        with open(self.log, "a") as file:
            file.write(f"{tree} {commit} {problem or 'passed'}\n")
        return Verdict(not problem, "" if not problem else "check", problem)

    @property
    def log(self) -> Path:
        return self.home / "checks.log"

    def read_log(self) -> list[list[str]]:
        return [line.split(" ", 2) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def kill_sometimes(chance: random.Random) -> None:
    """Let this process kill itself at a random step of the queue."""
    left = chance.randint(1, 12)
    when = chance.choice(("before", "during", "after"))

    def count() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    write, run = journals._write, MergeTarget.try_git

    def write_or_die(handle: int, entry: Any) -> None:
        dies = count()
        if dies and when != "after":
            # Half of an entry is on disk.
            os.write(handle, b'{"type":"mov' if when == "during" else b"")
            die()
        write(handle, entry)
        if dies:
            die()

    async def run_or_die(self: MergeTarget, *words: str, **options: Any) -> Any:
        dies = words[0] in ("update-ref", "read-tree", "symbolic-ref") and chance.random() < 0.1
        if dies and when == "before":
            die()
        if dies and when == "during":
            asyncio.get_running_loop().call_later(chance.random() * 0.02, die)
        done = await run(self, *words, **options)
        if dies:
            die()
        return done

    journals._write = write_or_die
    MergeTarget.try_git = run_or_die  # type: ignore[method-assign]


def run_until_done(desk: Desk, branches: Sequence[str], chance: random.Random, most: int) -> tuple[dict[str, Any], int]:
    """Run queues in forked processes until one survives; returns its report and the number of kills."""
    for kills in range(1000):
        answer = desk.home / "answer.json"
        child = os.fork()
        if not child:
            try:
                if kills < most:
                    kill_sometimes(random.Random(chance.random() + kills))
                answer.write_text(json.dumps(describe_report(asyncio.run(desk.land(*branches)))))
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        chance.random()
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return json.loads(answer.read_text()), kills
    raise AssertionError("never ended")


def main(root: Path, most: int, seeds: Sequence[int], tell: Callable[[str], None]) -> None:
    for seed in seeds:
        script, folder = write_script(seed), root / str(seed)
        folder.mkdir()
        make_repository(folder / "repo", script.files, BASE)
        desk = Desk(folder / "repo", folder / "home", seed=seed)
        report, kills = run_until_done(desk, list(script.files), random.Random(seed), most)
        tell(json.dumps({"seed": seed, "kills": kills, "report": report}))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]], lambda line: print(line, flush=True)
    )
