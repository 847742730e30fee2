"""What the crew of the crash sweep is told to do: twenty runs, some in copies of a repository, and two schedules.

Every command leaves a token in one file after what it did, so that the file says what was really done, and how often.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.workplace import CLI, Workplace

CHILDREN, CONCURRENT = 20, 4
ISOLATED = range(0, CHILDREN, 4)
"""The children that work in a copy; every other one of these commits what it writes."""
SOON, OFTEN = "soon", "often"
INTERVAL_S = 5
LATE_S = 60
Json = dict[str, Any]


def script_crew(sample: Path, effects: Path) -> Json:
    """A parent that starts twenty children and schedules two more; each leaves traces, and reads."""
    pace = {"delay_ms": 2}
    later = [schedule(SOON, "+1s"), schedule(OFTEN, f"{INTERVAL_S}s")]
    copies = [start_child(number) for number in ISOLATED]
    others = [start_child(number) for number in range(CHILDREN) if number not in ISOLATED]
    parent = {"first_user": "^begin|^go on"}
    # Those in copies come first, since making a copy takes longest.
    replies: list[Json] = [{"calls": calls, "match": parent, **pace} for calls in ([*later, *copies], others)]
    replies += [{"text": f"Noted ({number}).", "match": parent, **pace} for number in range(5 * CHILDREN)]
    for number in range(CHILDREN):
        match = {"first_user": f"child-{number:02d}"}
        steps = [run_command(command_child(number, step, effects)) for step in (1, 2)]
        look = {"calls": [{"name": "read", "arguments": {"path": str(sample)}}]}
        answer = {"text": f"Child {number:02d} is done."}
        replies += [{**reply, "match": match, **pace} for reply in (steps[0], look, steps[1], answer)]
    for name in (SOON, OFTEN):
        # Each run has a session of its own, by which its token is told from those of the same job's other runs.
        leave = run_command(f"echo {name}-$PI_SESSION_ID >> {effects}")
        replies += [{**reply, "match": {"first_user": f"^{name}"}, **pace} for reply in (leave, {"text": "Done."})]
    return {"replies": replies}


def start_child(number: int) -> Json:
    """The call that starts one."""
    arguments = {"prompt": f"child-{number:02d}", "description": f"child {number}"}
    return {"name": "Agent", "arguments": {**arguments, **({"isolation": "worktree"} if number in ISOLATED else {})}}


def schedule(name: str, when: str) -> Json:
    """The call that starts one later."""
    return {"name": "Agent", "arguments": {"prompt": name, "description": name, "schedule": when}}


def run_command(command: str) -> Json:
    """A turn that runs it."""
    return {"calls": [{"name": "bash", "arguments": {"command": command}}]}


def name_work(token: str) -> str:
    """The file that a child in a copy writes before it leaves this token."""
    return f"work-{token}.txt"


def command_child(number: int, step: int, effects: Path) -> str:
    """What one step of a child does; the token comes last."""
    token = f"{number:02d}-{step}"
    leave = f"echo {token} >> {effects}; sleep 0.02"
    if number not in ISOLATED:
        return leave
    work = f"echo {token} > {name_work(token)}"
    commit = "git add -A && git -c user.name=a -c user.email=a@example.org commit -qm step"
    return f"{work} && {commit} && {leave}" if number % 8 == 0 else f"{work} && {leave}"


def make_repository(folder: Path) -> None:
    """A repository with one commit."""
    folder.mkdir()
    (folder / "a.txt").write_text("a\n", encoding="utf-8")
    name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main", "--template="), ("add", "-A"), (*name, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def renew_project(place: Workplace, template: Path) -> None:
    """Nothing of the last crew is left."""
    shutil.rmtree(place.project)
    shutil.copytree(template, place.project)
    for folder in (find_effects(place).parent, place.agent_dir / "retinue" / "worktrees"):
        shutil.rmtree(folder, ignore_errors=True)
    find_effects(place).parent.mkdir()


def find_effects(place: Workplace) -> Path:
    """Where commands leave their tokens; outside of the project, since a copy has another one."""
    return place.folder / "traces" / "effects.txt"


def write_settings(place: Workplace, join: str, runner: str = "inprocess") -> None:
    """Few at once, so that many wait; commands may write where they leave their tokens."""
    sandbox = {"writable": [str(find_effects(place).parent)]}
    settings = {"maxConcurrent": CONCURRENT, "defaultJoinMode": join, "sandbox": sandbox, "runner": runner}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")


def build_command(session: Path, prompt: str) -> list[str]:
    """One process on a certain session."""
    return [*CLI, "-p", "--mode", "json", "--model", "mock/bench", "--session", str(session), prompt]


def read_jobs(place: Workplace) -> list[Json]:
    """The scheduled jobs, as their file has them."""
    files = (place.project / ".pi" / "subagent-schedules").glob("*.json")
    return [job for path in files for job in json.loads(path.read_text(encoding="utf-8"))["jobs"]]
