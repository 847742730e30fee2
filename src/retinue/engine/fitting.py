"""A run on the way to its setup, as features see it. Plain data."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.tool import Tool
from retinue.engine.extras import NOTHING, Extras
from retinue.engine.request import RunRequest
from retinue.tools.policy import Rights, Terms


class Fitting(Struct, frozen=True):
    """A run on the way to its setup: what features look at to decide whether they are wanted."""

    definition: Definition
    request: RunRequest
    rights: Rights
    terms: Terms
    cwd: Path
    tools: Mapping[str, Tool]
    """Every tool there is, by its own name."""
    branch: str = ""
    """Where an earlier attempt has left its changes."""
    extras: Extras = NOTHING
