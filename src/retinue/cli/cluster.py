"""`retinue cluster`: show workers and runs of a cluster, fetch the result of a run, delete old runs."""

import sys
from typing import Any

from msgspec import to_builtins

from retinue.app.remote import fetch_run, prune_cluster, read_cluster
from retinue.cli.options import Options
from retinue.cli.voice import print_json, say
from retinue.cli.worker import read_number
from retinue.core.errors import UsageError, quote
from retinue.core.figures import count_noun, format_duration
from retinue.core.terminal import escape_line

SHOWN_RUNS = 30
SHOWN_GONE = 3
SHOWN_KEPT = 10
MOST_DAYS = 36_500
SILENT_MS = 3000
"""A working worker sends heartbeats more often than this."""


def run_cluster(options: Options) -> int:
    verb, *rest = options.words or ["status"]
    if verb not in ("status", "prune", "fetch"):
        raise UsageError(f"unknown action {quote(verb)}; use retinue cluster status, fetch RUN or prune --days N")
    if rest and verb != "fetch":
        raise UsageError(f"retinue cluster {verb} takes no argument {quote(rest[0])}")
    if verb == "prune":
        return _prune(options)
    if options.days or options.unfetched:
        raise UsageError(f"{'--days' if options.days else '--unfetched'} works only with retinue cluster prune")
    if verb == "fetch":
        return _fetch(options, rest)
    state: dict[str, Any] = to_builtins(read_cluster(options.database))
    if options.json:
        return print_json(state)
    sys.stdout.write("\n".join(render_state(state)) + "\n")
    return 0


def _fetch(options: Options, words: list[str]) -> int:
    if not words:
        raise UsageError(
            "retinue cluster fetch needs the id of a run, whose changes it saves as a branch of this repository"
        )
    branch = fetch_run(options.database, words[0])
    if options.json:
        print_json({"branch": branch})
    elif branch:
        say(f"changes saved to branch {branch}; merge: git merge {branch}")
    else:
        say(f"run {quote(words[0])} made no changes")
    return 0


def _prune(options: Options) -> int:
    if not options.days:
        raise UsageError("retinue cluster prune needs --days N: runs that finished longer ago are removed")
    days = read_number("--days", options.days, 1, MOST_DAYS)
    pruned: dict[str, Any] = to_builtins(prune_cluster(options.database, days, say, everything=options.unfetched))
    if options.json:
        return print_json(pruned)
    listed = ", ".join(f"{count} {name}" for name, count in pruned["removed"].items() if count)
    nothing = "nothing else" if pruned["kept"] else "nothing"
    for line in render_kept(pruned["kept"]):
        say(line)
    say(f"removed {listed}" if listed else f"{nothing} finished more than {count_noun(days, 'day')} ago")
    return 0


def render_kept(kept: list[dict[str, Any]]) -> list[str]:
    """Render the runs that were not deleted, and how to fetch them."""
    changed = [left["id"] for left in kept if left["hasChanges"]]
    unheard = [left["id"] for left in kept if not left["hasChanges"]]
    lines = []
    if changed:
        lines.append(
            f"kept {count_noun(len(changed), 'run')} whose changes were not fetched: {_list_some(changed)}; "
            f"to fetch them, run in the repository: retinue cluster fetch {escape_line(changed[0], 80)}"
        )
    if unheard:
        lines.append(
            f"kept {count_noun(len(unheard), 'run')} whose result was not read: {_list_some(unheard)}; open the "
            "session that started it: retinue -c"
        )
    return [*lines, "to delete these too, add --unfetched"] if lines else []


def _list_some(names: list[str]) -> str:
    more = len(names) - SHOWN_KEPT
    return ", ".join(escape_line(name, 80) for name in names[:SHOWN_KEPT]) + (f" and {more} more" if more > 0 else "")


def render_state(state: dict[str, Any]) -> list[str]:
    """Render the cluster state as lines of text."""
    there = [worker for worker in state["workers"] if not worker["gone"]]
    waiting = sum(queue["waiting"] for queue in state["queues"])
    working = sum(queue["working"] for queue in state["queues"])
    lines = [
        f"{escape_line(state['database'], 80)}: {count_noun(len(there), 'worker')}, {working} of "
        f"{sum(worker['slots'] for worker in there)} slots busy, {waiting} waiting"
    ]
    lines += ["", "workers", *_render_workers(state["workers"])] if state["workers"] else []
    lines += ["", *_render_queues(state)]
    if state["runs"]:
        lines += ["", "runs", *map(_render_run, state["runs"][:SHOWN_RUNS])]
    if state["runsTotal"] > SHOWN_RUNS:
        lines.append(f"  … {state['runsTotal'] - SHOWN_RUNS} more; --json shows up to 1000")
    return [*lines, *_render_remarks(there, waiting)]


def _render_workers(workers: list[dict[str, Any]]) -> list[str]:
    gone = [worker for worker in workers if worker["gone"]]
    rows = [_render_worker(worker) for worker in (*(each for each in workers if not each["gone"]), *gone[:SHOWN_GONE])]
    more = len(gone) - SHOWN_GONE
    return [*rows, f"  … {more} more gone within the hour"] if more > 0 else rows


def _render_worker(worker: dict[str, Any]) -> str:
    seen = f"seen {format_duration(worker['seenAgoMs'])} ago"
    if worker["gone"]:
        seen = f"gone, last {seen}"
    elif worker["seenAgoMs"] > SILENT_MS:
        seen = f"silent, last {seen}"
    return (
        f"  {escape_line(worker['name'], 40):<32}  {escape_line(worker['host'], 30)}, pid {worker['pid']}, "
        f"version {escape_line(worker['version'], 20) or 'unknown'}  {worker['busy']}/{worker['slots']} busy  {seen}"
    )


def _render_queues(state: dict[str, Any]) -> list[str]:
    lag = state["lag"]
    listed = [f"{queue['name']} {queue['waiting']} waiting" for queue in state["queues"] if queue["waiting"]]
    oldest = lag["oldestWaitingMs"]
    facts = [f"database answers in {lag['roundTripMs']:g} ms"]
    facts += [f"oldest run waiting for {format_duration(oldest)}"] if oldest is not None else []
    return [f"queues  {', '.join(listed) or 'empty'}", f"lag     {', '.join(facts)}"]


def _render_run(run: dict[str, Any]) -> str:
    where = f"on {escape_line(run['worker'], 40)}" if run["worker"] else f"in {escape_line(run['queue'], 40)}"
    again = f", taken over {run['takeovers']}×" if run["takeovers"] else ""
    asking = f", waiting for an answer for {format_duration(run['askingMs'])}" if run["askingMs"] is not None else ""
    return (
        f"  {escape_line(run['id'], 24):<20}  {run['status']:<7}  {format_duration(run['sinceMs']):>7}  "
        f"{escape_line(run['agent'], 24):<16}  {escape_line(run['description'], 50)}  ({where}{again}{asking})"
    )


def _render_remarks(there: list[dict[str, Any]], waiting: int) -> list[str]:
    versions = sorted({worker["version"] for worker in there})
    remarks = []
    if len(versions) > 1:
        remarks.append(f"the workers have different versions ({', '.join(versions)}); install the same one everywhere")
    if waiting and not there:
        remarks.append("runs are waiting but there is no worker; start one: retinue worker")
    return ["", *(f"! {escape_line(remark, 200)}" for remark in remarks)] if remarks else []
