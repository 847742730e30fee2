"""Reads what a parent agent passes to this process in environment variables."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from retinue.core.environment import BUDGET_FD, RESULT
from retinue.core.errors import UsageError, quote
from retinue.core.messages import THINKING_LEVELS
from retinue.features.extensions.candidates import WantedExtensions
from retinue.settings.request import Request

if TYPE_CHECKING:
    from retinue.engine.external.budget_socket import ParentBudget

_MAX_DIGITS = 9


def inherit(request: Request, environment: Mapping[str, str]) -> Request:
    """Fill in what no flag sets from the parent; unchanged if this process is not a child."""
    if environment.get("PI_SUBAGENT_CHILD") != "1":
        return request
    level = environment.get("PI_REASONING_LEVEL", "")
    turns, grace = (_read_count(environment.get(name, "")) for name in ("RETINUE_MAX_TURNS", "RETINUE_GRACE_TURNS"))
    limits = request.limits
    if turns:
        limits = replace(limits, max_turns=limits.max_turns or turns, grace_turns=grace or limits.grace_turns)
    return replace(
        request,
        is_child=True,
        is_readonly=environment.get("RETINUE_READONLY") == "1",
        is_fork=environment.get("RETINUE_FORK") == "1",
        limits=limits,
        # The parent holds the lock of the whole session tree.
        session=replace(request.session, is_alone=True),
        inherited_provider=environment.get("PI_PROVIDER") or None,
        inherited_model=environment.get("PI_MODEL") or None,
        result=environment.get(RESULT, ""),
        inherited_thinking=next((known for known in THINKING_LEVELS if known == level), None),
    )


def inherit_agents(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the agents that a child may start; None for all."""
    named = _read(environment, "RETINUE_AGENTS")
    return None if named is None else tuple(filter(None, named.split(",")))


def inherit_extensions(environment: Mapping[str, str]) -> WantedExtensions | None:
    """Return the extensions that a child shall load; None if the parent does not say."""
    named = _read(environment, "RETINUE_EXTENSIONS")
    if named is None:
        return None
    try:
        return msgspec.json.decode(named, type=WantedExtensions)
    except msgspec.DecodeError:
        return WantedExtensions(selection=False)


def inherit_budget(environment: Mapping[str, str]) -> "ParentBudget | None":
    """Return the parent's budget; None if there is none. Raises UsageError."""
    named = _read(environment, BUDGET_FD)
    if named is None:
        return None
    import socket

    from retinue.engine.external.budget_socket import ParentBudget

    try:
        end = socket.socket(fileno=_read_count(named))
    except OSError as error:
        # A budget that cannot be read must not be ignored.
        raise UsageError(f"{BUDGET_FD} {quote(named)} is not an open socket ({error.strerror}); unset it") from None
    end.set_inheritable(False)
    return ParentBudget(end)


def _read(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) if environment.get("PI_SUBAGENT_CHILD") == "1" else None


def _read_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
