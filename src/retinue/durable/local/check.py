"""`retinue doctor` checks of the record of durable runs. Changes nothing."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.diagnostics import Item
from retinue.durable.local.backend import has_record

if TYPE_CHECKING:
    from retinue.durable.local.database import RunRow

BUSY_S = 1.0
MOST_NAMED = 3


def check_record(path: Path, try_writing: Callable[[Path], str], *, is_wanted: Callable[[], bool]) -> list[Item]:
    """Check whether the record is usable and what waits in it; empty if no durable runs are configured.

    `try_writing` returns why a folder is not writable.
    """
    if has_record(path):
        return _examine(path)
    if not is_wanted():
        return []
    if problem := try_writing(path.parent):
        return [Item("fail", "record", "Record of durable runs cannot be made", f"{path}: {problem}")]
    return [Item("pass", "record", "No durable run on record", f"{path} is made with the first one")]


def _examine(path: Path) -> list[Item]:
    from retinue.durable.local.database import HeldError, RunDatabase
    from retinue.durable.session_files import RecordError

    try:
        entries = RunDatabase(path, busy_s=BUSY_S).check()
    except HeldError as error:
        return [Item("warn", "record", "Record of durable runs is held", str(error))]
    except RecordError as error:
        return [Item("fail", "record", "Record of durable runs cannot be used", str(error))]
    items = [Item("pass", "record", "Record of durable runs usable", str(path))]
    here = [entry for entry in entries if Path(entry.main).exists()]
    gone = [entry for entry in entries if entry not in here]
    if here:
        told = _list_sessions(here, "retinue --session ")
        text = f"{_count(here)} not ended"
        items.append(Item("info", "record", text, f"working now, or to be resumed with: {told}"))
    if gone:
        text = f"{len(gone)} durable run{'' if len(gone) == 1 else 's'} cannot continue"
        items.append(Item("warn", "record", text, f"their sessions are gone: {_list_sessions(gone)}"))
    return items


def _count(entries: "Sequence[RunRow]") -> str:
    return f"{len(entries)} durable run{' has' if len(entries) == 1 else 's have'}"


def _list_sessions(entries: "Sequence[RunRow]", before: str = "") -> str:
    files = list(dict.fromkeys(entry.main for entry in entries))
    more = len(files) - MOST_NAMED
    named = ", ".join(f"{before}{shlex.quote(file)}" for file in files[:MOST_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
