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
        return [Item("fail", "record", "Record of durable runs cannot be created", f"{path}: {problem}")]
    return [Item("pass", "record", "No durable run on record", f"{path} is created with the first one")]


def _examine(path: Path) -> list[Item]:
    from retinue.durable.local.database import HeldError, RunDatabase
    from retinue.durable.session_files import RecordError

    try:
        entries = RunDatabase(path, busy_s=BUSY_S).check()
    except HeldError as error:
        return [Item("warn", "record", "Record of durable runs is locked", str(error))]
    except RecordError as error:
        return [Item("fail", "record", "Record of durable runs cannot be used", str(error))]
    items = [Item("pass", "record", "Record of durable runs usable", str(path))]
    here = [entry for entry in entries if Path(entry.main).exists()]
    gone = [entry for entry in entries if entry not in here]
    if here:
        text = f"{len(here)} durable run{' has' if len(here) == 1 else 's have'} not ended"
        told = _list_sessions(here, "retinue --session ")
        items.append(Item("info", "record", text, f"running now, or resumed by: {told}"))
    if gone:
        text = f"{len(gone)} durable run{'' if len(gone) == 1 else 's'} cannot be resumed"
        items.append(Item("warn", "record", text, f"missing sessions: {_list_sessions(gone)}"))
    return items


def _list_sessions(entries: "Sequence[RunRow]", before: str = "") -> str:
    files = list(dict.fromkeys(entry.main for entry in entries))
    more = len(files) - MOST_NAMED
    named = ", ".join(f"{before}{shlex.quote(file)}" for file in files[:MOST_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
