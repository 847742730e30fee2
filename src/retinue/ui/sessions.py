"""Sessions in words: what one is called and what else there is to know of it. Pure."""

from collections.abc import Mapping
from typing import Any

from retinue.ui.formats import clean_line, fold_skill


def describe_session(
    found: Mapping[str, Any], *, with_folder: bool = False, with_path: bool = False
) -> tuple[str, str]:
    """Its name, and the rest."""
    name = clean_line(found["name"] or fold_skill(found["firstMessage"] or "(empty)"), 80)
    more = found["path"] if with_path else found["cwd"] if with_folder else ""
    place = f" · {more}" if more else ""
    return name, f"{found['modified'][:16].replace('T', ' ')} · {found['messages']} messages{place}"
