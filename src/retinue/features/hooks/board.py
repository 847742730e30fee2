"""The hooks of one run, in their order: tells observers, asks deciders, and knows what a failure of each means.

Must not know what a point is about: payloads and consequences are the business of whoever stands at it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from retinue.core.errors import quote
from retinue.core.launch import Confining
from retinue.features.hooks.command import Workplace, run_command
from retinue.features.hooks.points import GUARDS, Decision, HookFailed, HookLate, parse_decision
from retinue.features.hooks.spec import HookSpec, Kind, Scope

_RANKS: Mapping[Scope, int] = {"session": 2, "project": 1, "global": 0}
_LOG = logging.getLogger("retinue.hooks")


class Hook(Protocol):
    """Somebody who wants to be told or asked."""

    @property
    def name(self) -> str: ...

    @property
    def point(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def priority(self) -> int: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def is_own(self) -> bool:
        """Whether it is the user's; what a project brings may refuse, and never permits."""
        ...

    async def ask(self, payload: Mapping[str, Any]) -> Any:
        """Its answer as a decision object, or None. Raises HookFailed."""
        ...


class CommandHook:
    """A hook that is a program."""

    def __init__(self, spec: HookSpec, place: Workplace) -> None:
        self._spec = spec
        self._place = place
        self.name = spec.name
        self.point = spec.point
        self.kind: Kind = spec.kind
        self.priority = spec.priority
        self.scope: Scope = spec.scope
        self.is_own = spec.is_own

    async def ask(self, payload: Mapping[str, Any]) -> Any:
        """Run it. Raises HookFailed."""
        return await run_command(self._spec, payload, self._place)


class Board:
    """The hooks of one run."""

    def __init__(self, hooks: Iterable[Hook], warn: Callable[[str], None]) -> None:
        """`warn` is told once of each hook that fails."""
        self._by_point: dict[str, list[Hook]] = {}
        for hook in sorted(hooks, key=lambda hook: (-_RANKS[hook.scope], -hook.priority)):
            self._by_point.setdefault(hook.point, []).append(hook)
        self._warn = warn
        self._told: set[str] = set()
        self._late: set[str] = set()
        """Observers that took too long once: a run is not held up by them a second time."""
        self.facts: dict[str, Any] = {}
        """What every payload carries: the project, the session, the run."""
        self.boundary: Confining | None = None
        """Of the run, while it works: what a project's programs are confined by."""

    def __bool__(self) -> bool:
        return bool(self._by_point)

    def has(self, *points: str) -> bool:
        """Whether anybody is at one of these points."""
        return any(point in self._by_point for point in points)

    async def tell(self, point: str, payload: Mapping[str, Any]) -> None:
        """Tell everybody at a point, side by side; nothing they do comes back."""
        hooks = self._by_point.get(point)
        if hooks:
            whole = self._complete(point, payload)
            await asyncio.gather(*(self._tell_one(hook, whole) for hook in hooks))

    async def decide(self, point: str, payload: Mapping[str, Any]) -> Decision | None:
        """The first opinion anybody has; None when nobody has one.

        A hook that fails has none, and the next is asked. At a guarded point that is not enough to pass: unless another
        refuses, the failure does. Those that only observe are told.
        """
        hooks = self._by_point.get(point)
        if not hooks:
            return None
        whole = self._complete(point, payload)
        failure: Decision | None = None
        found: Decision | None = None
        for hook in hooks:
            if hook.kind == "observer":
                await self._tell_one(hook, whole)
                continue
            if found is not None:
                continue
            try:
                found = parse_decision(await hook.ask(whole))
            except HookFailed as error:
                self._note(hook, error)
                if failure is None and point in GUARDS:
                    failure = Decision("deny", f"the hook {quote(hook.name)} {error}", hook=hook.name)
            else:
                found = found and replace(found, hook=hook.name, is_own=hook.is_own)
                if found is not None and not hook.is_own and found.word == "allow":
                    found = None  # a project cannot answer for the user; who comes next may
        if failure is not None and (found is None or found.word != "deny"):
            return failure
        return found

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
        # Below what Python prints by itself: a face shows the first one, and a terminal is not for raw lines.
        _LOG.info("%s", text)
        if hook.name not in self._told:
            self._told.add(hook.name)
            self._warn(text)
