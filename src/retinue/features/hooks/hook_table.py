"""The hooks of one run, in order: notifies observers, asks deciding hooks, and handles their failures.

Must not know what a point means: the caller provides payloads and applies decisions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import quote
from retinue.core.launch import ConfinementFactory
from retinue.features.hooks.command import HookContext, run_command
from retinue.features.hooks.points import (
    ANYWHERE,
    GUARDS,
    HookDecision,
    HookFailed,
    HookLate,
    HookSpec,
    Kind,
    Scope,
    parse_decision,
)

_RANKS: Mapping[Scope, int] = {"session": 2, "project": 1, "global": 0}
_LOG = logging.getLogger("retinue.hooks")
Fit: TypeAlias = Callable[[dict[str, Any]], tuple[dict[str, Any], list[str]]]
"""Makes arguments fit a tool; the list describes what is wrong with them."""


class Hook(Struct, frozen=True):
    """A command or function that is notified or asked at one point."""

    name: str
    point: str
    kind: Kind
    priority: int
    scope: Scope
    is_own: bool
    """Whether it is the user's; a project's hook may deny but never allow."""
    ask: Callable[[Mapping[str, Any]], Awaitable[Any]]
    """Returns its answer to a payload as a decision object, or None. Raises HookFailed."""


def to_hook(spec: HookSpec, place: HookContext) -> Hook:
    ask = partial(run_command, spec, place=place)
    return Hook(spec.name, spec.point, spec.kind, spec.priority, spec.scope, spec.is_own, ask)


class HookTable:
    def __init__(self, hooks: Iterable[Hook], warn: Callable[[str], None]) -> None:
        """`warn` is called once for each hook that fails."""
        self._by_point: dict[str, list[Hook]] = {}
        for hook in sorted(hooks, key=lambda hook: (-_RANKS[hook.scope], -hook.priority)):
            for point in GUARDS if hook.point == ANYWHERE else (hook.point,):
                self._by_point.setdefault(point, []).append(hook)
        self._warn = warn
        self._told: set[str] = set()
        self._late: set[str] = set()
        """Names of observers that timed out once; they are not called again."""
        self.facts: dict[str, Any] = {}
        """Fields in every payload: the project, the session, the run."""
        self.boundary: ConfinementFactory | None = None
        """The run's sandbox while it works; confines a project's programs."""

    def __bool__(self) -> bool:
        return bool(self._by_point)

    def has(self, *points: str) -> bool:
        return any(point in self._by_point for point in points)

    def decides(self, point: str) -> bool:
        """Return whether a hook at a point is asked for a decision."""
        return any(hook.kind == "decision" for hook in self._by_point.get(point, ()))

    async def tell(self, point: str, payload: Mapping[str, Any]) -> None:
        """Notify all hooks at a point concurrently; their answers are ignored."""
        hooks = self._by_point.get(point)
        if hooks:
            whole = self._complete(point, payload)
            await asyncio.gather(*(self._tell_one(hook, whole) for hook in hooks))

    async def decide(
        self, point: str, payload: Mapping[str, Any], *, fit: Fit | None = None, leaving_out: str = ""
    ) -> HookDecision | None:
        """Ask the hooks at a point in order and return the first opinion; None if there is none.

        If a hook fails, the next one is asked; at a guarded point the failure denies unless another hook does.
        Observers are notified. `fit` checks changed arguments; `leaving_out` is the key of the hook whose own change is
        being checked.
        """
        hooks = self._by_point.get(point)
        if not hooks:
            return None
        whole = self._complete(point, payload)
        failure: HookDecision | None = None
        found: HookDecision | None = None
        for place, hook in enumerate(hooks):
            if hook.kind == "observer":
                await self._tell_one(hook, whole)
                continue
            key = f"{place}:{hook.scope}:{hook.name}"
            if key == leaving_out or (found is not None and _is_settled(found, point)):
                continue
            try:
                said = _read_answer(hook, point, await hook.ask(whole), fit)
            except HookFailed as error:
                self._note(hook, error)
                if failure is None and point in GUARDS:
                    failure = HookDecision("deny", f"the hook {quote(hook.name)} {error}", hook=hook.name)
            else:
                found = _join(found, said and replace(said, key=key))
        if failure is not None and (found is None or found.word != "deny"):
            return failure
        return found

    async def revise(self, point: str, payload: Mapping[str, Any], field: str) -> tuple[str, list[str]]:
        """Let all hooks at a point change a text of the payload in turn; returns it and the names of those that did."""
        whole = self._complete(point, payload)
        by: list[str] = []
        for hook in self._by_point.get(point, ()):
            if hook.kind == "observer":
                await self._tell_one(hook, whole)
                continue
            try:
                said = parse_decision(await hook.ask(whole), point)
            except HookFailed as error:
                self._note(hook, error)
                continue
            if said is not None and said.modified_output not in (None, whole[field]):
                whole[field] = said.modified_output
                by.append(hook.name)
        return whole[field], by

    def _complete(self, point: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {"point": point, **self.facts, **payload}

    async def _tell_one(self, hook: Hook, payload: Mapping[str, Any]) -> None:
        if hook.name in self._late:
            return
        try:
            await hook.ask(payload)
        except HookFailed as error:
            if isinstance(error, HookLate):
                self._late.add(hook.name)
            self._note(hook, error)

    def _note(self, hook: Hook, error: HookFailed) -> None:
        text = f"hook {quote(hook.name)} at {hook.point} {error}"
        # Info, which Python does not print by default: a front end shows the first warning.
        _LOG.info("%s", text)
        if hook.name not in self._told:
            self._told.add(hook.name)
            self._warn(text)


def _read_answer(hook: Hook, point: str, raw: Any, fit: Fit | None) -> HookDecision | None:
    """Parse a hook's answer and drop what it may not decide. Raises HookFailed."""
    said = parse_decision(raw, point)
    if said is None:
        return None
    said = replace(said, hook=hook.name, is_own=hook.is_own)
    if said.modified_input is not None and fit is not None:
        fitted, problems = fit(said.modified_input)
        if problems:
            raise HookFailed(f"returned a modifiedInput that does not match the tool: {'; '.join(problems[:8])}")
        said = replace(said, modified_input=fitted)
    if hook.is_own or said.word == "deny":
        return said
    if said.modified_input is not None:
        return replace(said, word="ask")  # a project may propose a change, which the user must approve
    # A project's hook cannot allow on behalf of the user; the next hook may.
    return None if said.word == "allow" or (said.word == "continue" and point in GUARDS) else said


def _is_settled(found: HookDecision, point: str) -> bool:
    """Return whether no other hook need be asked; after an `ask` of a project, the user's guards may still deny.

    A changed call also ends this round; the other hooks are asked about the changed call.
    """
    return found.is_own or found.word == "deny" or found.modified_input is not None or point not in GUARDS


def _join(first: HookDecision | None, second: HookDecision | None) -> HookDecision | None:
    """Merge two opinions: an `ask` of the first stays in force unless the second denies."""
    if first is None or second is None:
        return first or second
    return second if second.word == "deny" else replace(second, word="ask", reason=first.reason or second.reason)
