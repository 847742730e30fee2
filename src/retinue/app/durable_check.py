"""The record of durable runs as `retinue doctor` tells of it. Looks, and changes nothing."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.durable.local.backend import FILE, has_record
from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths
from retinue.settings.roster import Roster
from retinue.settings.subagents import load_crew

if TYPE_CHECKING:
    from retinue.durable.local.database import Entry
    from retinue.settings.checkup import Item

BUSY_S = 1.0
MOST_NAMED = 3


def check_record(environment: Mapping[str, str], *, approve: bool | None) -> "list[Item]":
    """Where the record is, whether it can be used, and what waits in it; nothing where nobody wants one."""
    from retinue.settings.checkup import Item, try_writing

    try:
        path = find_paths(".", environment).own_dir / FILE
        if has_record(path):
            return _examine(path)
        if not _is_wanted(environment, approve):
            return []
    except RetinueError:
        return []  # told by others
    if problem := try_writing(path.parent):
        return [Item("fail", "record", "Record of durable runs cannot be made", f"{path}: {problem}")]
    return [Item("pass", "record", "No durable run on record", f"{path} is made with the first one")]


def _is_wanted(environment: Mapping[str, str], approve: bool | None) -> bool:
    paths = find_paths(".", environment)
    loaded = load_settings(paths, environment, approve=approve)
    settings = load_crew(paths, environment, trusted=loaded.trust.trusted).settings
    if settings.runner == "durable":
        return True
    return any(definition.runner == "durable" for definition in Roster(paths, loaded, settings).read().definitions)


def _examine(path: Path) -> "list[Item]":
    from retinue.durable.local.database import HeldError, Ledger
    from retinue.durable.pieces import RecordError
    from retinue.settings.checkup import Item

    try:
        entries = Ledger(path, busy_s=BUSY_S).check()
    except HeldError as error:
        return [Item("warn", "record", "Record of durable runs is held", str(error))]
    except RecordError as error:
        return [Item("fail", "record", "Record of durable runs cannot be used", str(error))]
    items = [Item("pass", "record", "Record of durable runs usable", str(path))]
    here = [entry for entry in entries if has_record(Path(entry.main))]
    gone = [entry for entry in entries if entry not in here]
    if here:
        told = _list_sessions(here, "retinue --session ")
        text = f"{_count(here)} not ended"
        items.append(Item("info", "record", text, f"at work now, or to go on with: {told}"))
    if gone:
        text = f"{len(gone)} durable run{'' if len(gone) == 1 else 's'} cannot go on"
        items.append(Item("warn", "record", text, f"not there any more: {_list_sessions(gone)}"))
    return items


def _count(entries: "Sequence[Entry]") -> str:
    return f"{len(entries)} durable run{' has' if len(entries) == 1 else 's have'}"


def _list_sessions(entries: "Sequence[Entry]", before: str = "") -> str:
    files = list(dict.fromkeys(entry.main for entry in entries))
    more = len(files) - MOST_NAMED
    named = ", ".join(f"{before}{shlex.quote(file)}" for file in files[:MOST_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
