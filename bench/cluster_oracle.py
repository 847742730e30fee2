"""What must hold after workers were killed: functions from what is there to what is wrong."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cluster_world import ClusterWorld
from bench.crew_oracle import Life, find_bad_notices, read_lives
from bench.findings import Findings

Json = dict[str, Any]
UNKNOWN = "interrupted, effect unknown"
_WATCH = """
CREATE TABLE public.ends (id text NOT NULL);
CREATE FUNCTION public.note_end() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.ends VALUES (NEW.id); RETURN NEW; END $$;
CREATE TRIGGER note_end AFTER UPDATE OF outcome ON retinue.runs FOR EACH ROW EXECUTE FUNCTION public.note_end();
"""


@dataclass(slots=True)
class Harm(Findings):
    """What was found to be wrong after a storm. The numbers are how much was tried."""

    doubled: list[str] = field(default_factory=list)
    overspent: list[str] = field(default_factory=list)
    runs: int = 0
    kills: int = 0
    moved: int = 0
    """Runs that another worker had to go on with."""
    unknown: int = 0
    """Calls that the model was told may have happened."""
    seconds: float = 0.0

    def render(self) -> str:
        """All of it in a line."""
        tried = f"{self.runs} runs, {self.kills} kills, {self.moved} moved, {self.unknown} calls unknown"
        found = ", ".join(f"{name} {len(lines)}" for name, lines in self.wrong.items())
        return f"{found}; {tried}; {self.seconds:.0f} s"


def watch_ends(world: ClusterWorld) -> None:
    """From now on the database itself notes each time that an outcome is written."""
    world.do(_WATCH)


def look(
    world: ClusterWorld, session: Path, harm: Harm, *, turns: int, may_stop: bool = False, spared_holds: int = 0
) -> None:
    """Compare the face's session, the database, the effects and the model's bill.

    `may_stop`: for want of a budget. `spared_holds`: what faces that were killed had set aside counts as spent.
    """
    entries: list[Json] = [json.loads(line) for line in session.read_text(encoding="utf-8").splitlines()]
    lives = read_lives(entries)
    outcomes = _read_outcomes(world)
    accepted = {"completed", "failed"} if may_stop else {"completed"}
    harm.lost += list(_find_lost(lives, outcomes, harm.runs, accepted))
    harm.doubled += list(_find_doubled(world, lives))
    harm.repeated += list(_find_repeated(world, lives, outcomes, turns))
    harm.unknown = sum(count_doubts(world).values())
    # Without a budget the main agent cannot be told any more.
    harm.notices += [] if may_stop else list(find_bad_notices(lives, entries))
    harm.overspent += list(_find_overspent(world, spared_holds))
    [(harm.moved,)] = world.ask("SELECT count(*) FROM retinue.runs WHERE epoch > 1")


def _read_outcomes(world: ClusterWorld) -> dict[str, Json]:
    rows = world.ask("SELECT run, outcome FROM retinue.runs")
    return {run: outcome or {} for run, outcome in rows}


def _find_lost(lives: dict[str, Life], outcomes: dict[str, Json], runs: int, accepted: set[str]) -> Iterator[str]:
    """Runs that were never sent, never ended, or ended otherwise than the model let them."""
    if len(lives) != runs or len(outcomes) != runs:
        yield f"{runs} were asked for, the session has {len(lives)}, the database {len(outcomes)}"
    for run, life in lives.items():
        told = outcomes.get(run, {})
        if len(life.statuses) < 1 or life.statuses[0] not in accepted or told.get("status") not in accepted:
            yield f"{run}: {life.statuses} in the session, {told.get('status')} {told.get('error', '')} on record"


def _find_doubled(world: ClusterWorld, lives: dict[str, Life]) -> Iterator[str]:
    """Runs that ended more than once, for the face or in the database."""
    yield from (f"{run}: ended {life.statuses}" for run, life in lives.items() if len(life.statuses) > 1)
    rows = world.ask("SELECT id, count(*) FROM public.ends GROUP BY id HAVING count(*) > 1")
    yield from (f"{run}: {count} outcomes were written" for run, count in rows)


def _find_repeated(world: ClusterWorld, lives: dict[str, Life], outcomes: dict[str, Json], turns: int) -> Iterator[str]:
    """Calls that were done twice, and those that were not done though nobody was told of a doubt."""
    doubts = count_doubts(world)
    done = Counter(world.effects)
    yield from (f"{line}: done {count} times" for line, count in done.items() if count > 1)
    per_session = Counter(line.split()[0] for line in done)
    for run, session in read_sessions(world).items():
        missing, told = turns - 1 - per_session[session], doubts.get(lives[run].task, 0)
        if outcomes[run].get("status") == "completed" and missing > told:
            yield f"{run}: {missing} calls were not done, {told} were told to be in doubt"


def read_sessions(world: ClusterWorld) -> dict[str, str]:
    """The session of each run, by which its effects are signed."""
    rows = world.ask("SELECT run, data FROM retinue.records WHERE kind = 'session' AND place = 0")
    return {run: json.loads(bytes(data).partition(b"\n")[0])["id"] for run, data in rows}


def count_doubts(world: ClusterWorld) -> dict[str, int]:
    """By task: how many calls the model was told may have happened."""
    found: dict[str, int] = {}
    for request in world.server.requests:
        if UNKNOWN.encode() not in request.body:
            continue
        texts = [_to_text(message["content"]) for message in request.json["messages"] if message["role"] != "assistant"]
        # The first message goes on with the mark of its agent.
        task = next(text for text in texts if text.startswith("Task")).partition("\n")[0]
        found[task] = max(found.get(task, 0), sum(UNKNOWN in text for text in texts))
    return found


def _to_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or ())


def _find_overspent(world: ClusterWorld, spared_holds: int) -> Iterator[str]:
    """Budgets that were exceeded, that count less than the model was asked for, or still hold something."""
    left = world.ask("SELECT tokens FROM retinue.holds")
    if len(left) > spared_holds:
        yield f"{len(left)} holds are left"
    kept, served = sum(tokens for (tokens,) in left), world.served_tokens
    rows = world.ask("SELECT id, tokens, spent_tokens, held_tokens FROM retinue.leases WHERE tokens IS NOT NULL")
    for key, limit, spent, held in rows:
        if max(spent + held, served) > limit or held not in (0, kept):
            yield f"{key}: {spent} of {limit} counted, {held} held, {served} served"
    # Each prompt has a budget of its own: a face that comes back has another one.
    if (counted := sum(row[2] + row[3] for row in rows)) < served and not spared_holds:
        yield f"{counted} counted, {served} served"


def list_processes(variable: str) -> list[str]:
    """The command lines of all processes that have this variable in their environment."""
    mark, found = variable.encode(), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            continue
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
        except OSError:
            continue
    return found
