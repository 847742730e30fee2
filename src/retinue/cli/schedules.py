"""`retinue schedules`: list and cancel scheduled agents."""

import sys
from typing import Any

from retinue.app import cancel_schedule, list_schedules
from retinue.cli.options import Options
from retinue.cli.voice import print_json, say
from retinue.core.errors import UsageError, quote
from retinue.core.terminal import escape_line


def run_schedules(options: Options) -> int:
    if options.words:
        return _cancel(options.words)
    jobs, problems = list_schedules()
    for problem in problems:
        say(problem)
    if options.json:
        return print_json({"jobs": jobs})
    if not jobs:
        say("nothing is scheduled in this project")
    for job in jobs:
        sys.stdout.write(f"{_render(job)}\n")
    return 0


def _cancel(words: list[str]) -> int:
    if words[0] != "cancel":
        raise UsageError(f"unknown action {quote(words[0])}; use retinue schedules cancel ID")
    if len(words) < 2:
        raise UsageError("retinue schedules cancel needs the id of a job; retinue schedules lists them")
    if not cancel_schedule(words[1]):
        raise UsageError(f"no job {quote(words[1])} is scheduled in this project; retinue schedules lists them")
    return 0


def _render(job: dict[str, Any]) -> str:
    when = str(job.get("nextRun", ""))[:16].replace("T", " ") if job.get("enabled") else "off"
    cells = (str(job.get(name, "")) for name in ("id", "schedule", "subagent_type", "name"))
    ident, schedule, agent, name = (escape_line(cell, 60) for cell in cells)
    return f"{ident:<10}  {escape_line(when, 16):<16}  {schedule:<14}  {agent:<16}  {name}"
