"""Reads what a parent agent passes to this process in environment variables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from retinue.core.environment import BUDGET_FD, QUESTION_FD, RESULT
from retinue.core.errors import UsageError, quote
from retinue.core.messages import THINKING_LEVELS
from retinue.features.extensions.candidates import WantedExtensions
from retinue.settings.request import Request

if TYPE_CHECKING:
    from socket import socket

    from retinue.engine.external.budget_socket import ParentBudget
    from retinue.engine.external.question_socket import ParentDesk

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
    """Return the parent's budget; None if there is none. Raises UsageError: it must not be ignored."""
    end = _open_socket(environment, BUDGET_FD)
    if end is None:
        return None
    from retinue.engine.external.budget_socket import ParentBudget

    return ParentBudget(end)


def inherit_questions(environment: Mapping[str, str]) -> "ParentDesk | None":
    """Return where the agent of this process can ask its parent; None if it cannot. Raises UsageError."""
    end = _open_socket(environment, QUESTION_FD)
    if end is None:
        return None
    from retinue.engine.external.question_socket import ParentDesk

    return ParentDesk(end)


def _open_socket(environment: Mapping[str, str], variable: str) -> "socket | None":
    named = _read(environment, variable)
    if named is None:
        return None
    from socket import socket

    try:
        end = socket(fileno=_read_count(named))
    except OSError as error:
        raise UsageError(f"{variable} {quote(named)} is not an open socket ({error.strerror}); unset it") from None
    end.set_inheritable(False)
    return end


def _read(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) if environment.get("PI_SUBAGENT_CHILD") == "1" else None


def _read_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
