"""Gates: while the usage limit of a provider and key is reached, callers wait here instead of asking.

A gate exists only while its limit lasts. At the reset time one caller passes as a probe; when that succeeds the others
follow, as many at a time as have succeeded. This file must not know runs or wire formats.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.model import Failure, ModelInfo
from retinue.models.gate_files import GateFiles
from retinue.models.retry import RetryPolicy, is_limit

_LOOK_S = 60.0
"""The wall clock is read this often: a monotonic one stands still while the machine sleeps."""
_SHORTEST_S = 5.0


class LimitPause(Struct, frozen=True):
    """Why and until when a caller waits."""

    gate: str
    provider: str
    until_ms: int


class SharedGates(Protocol):
    """Gates of several processes, such as a table of a database. Must not raise."""

    async def read(self, gate: str) -> int:
        """Milliseconds of the epoch until which a gate is closed, also if that has passed; 0 if it is open."""
        ...

    async def close(self, gate: str, until_ms: int) -> None: ...

    async def claim(self, gate: str) -> int | None:
        """Return a number for `release` if this process may ask now, which is 0 if the gate is open.

        None if it is closed again, or, after a moment, if others ask and no more may ask at the same time.
        """
        ...

    async def release(self, gate: str, claim: int) -> None:
        """The call that was claimed has ended."""
        ...

    async def open(self, gate: str) -> None:
        """A claimed call was not refused."""
        ...


def name_gate(info: ModelInfo) -> str:
    """The name of the gate of a model: its provider, and a hash of the key."""
    return f"{info.provider}#{info.account}" if info.account else info.provider


def name_account(key: str | None) -> str:
    return sha256(f"retinue gate {key}".encode()).hexdigest()[:16] if key else ""


class _Gate:
    """The limit of one provider and key while it lasts."""

    def __init__(self, name: str, provider: str, until_ms: int) -> None:
        self.name = name
        self.provider = provider
        self.until_ms = until_ms
        self.width = 0
        """Number of callers that may ask at the same time; 0 while closed."""
        self.asking = 0
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.watcher: asyncio.Future[None] | None = None
        """The one of them that looks at the clock for all."""

    @property
    def pause(self) -> LimitPause:
        return LimitPause(self.name, self.provider, self.until_ms)

    def wake(self, count: int = 1) -> None:
        for waiter in self.waiters:
            if count and not waiter.done():
                waiter.set_result(None)
                count -= 1


class Passage(Struct, eq=False):
    """A caller's permission to ask once."""

    gate: _Gate | None = None
    until_ms: int = 0
    """The reset time after which it passed; another one means that the gate was closed again meanwhile."""
    is_probe: bool = False
    claim: int = 0
    """What to give back to the gates of several processes; 0 for nothing."""


class Gates:
    """The gates of one process."""

    def __init__(self, clock: Clock, shared: SharedGates | None = None, folder: Path | None = None) -> None:
        """`folder`: where child processes share their limits; None if they find them out themselves."""
        self._clock = clock
        self.folder = folder
        self._shared = shared
        self._gates: dict[str, _Gate] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def covers_children(self) -> bool:
        """Whether child processes read and write the same limits as this one."""
        return isinstance(self._shared, GateFiles)

    def find_pause(self, info: ModelInfo) -> LimitPause | None:
        """The limit that a call of this model would have to wait for; None if it can be asked."""
        gate = self._gates.get(name_gate(info))
        return None if gate is None or self._lets_pass(gate) else gate.pause

    def list_pauses(self) -> list[LimitPause]:
        return [gate.pause for gate in self._gates.values() if not self._lets_pass(gate)]

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener when a gate closes or opens; returns a stop function."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def restore(self, pause: LimitPause) -> None:
        """Close a gate because of a limit that was recorded earlier."""
        self._close(pause)

    def wake(self, provider: str) -> None:
        """Let the callers that wait for a provider look again: what they are willing to wait for has changed."""
        for gate in self._gates.values():
            if gate.provider == provider:
                gate.wake(len(gate.waiters))

    async def enter(
        self,
        info: ModelInfo,
        tell: Callable[[LimitPause], None] = lambda pause: None,
        may_leave: Callable[[LimitPause], float | None] | None = None,
        *,
        claims: bool = True,
    ) -> Passage | None:
        """Wait until the model may be asked; `tell` is called for each reset time that is waited for.

        `may_leave` returns the seconds after which the caller would rather ask another model; then None is returned.
        Without `claims` the caller starts a process that enters the gates itself. The caller must pass the result to
        `leave` or `give_up`, and then to `share`.
        """
        name = name_gate(info)
        # A row stays after its reset time until a probe has succeeded.
        if self._shared is not None and (until_ms := await self._shared.read(name)):
            self._close(LimitPause(name, info.provider, until_ms))
        told = 0
        while (gate := self._gates.get(name)) is not None:
            if gate.asking < gate.width or (not gate.width and self._lets_pass(gate)):
                passage = self._pass(gate)
                if not claims or await self._claim(passage, gate):
                    return passage
                continue
            wait_limit_s = None if may_leave is None else may_leave(gate.pause)
            if wait_limit_s is not None and wait_limit_s <= 0:
                gate.wake()
                return None
            if told != gate.until_ms:
                told = gate.until_ms
                # While a probe is under way its reset time has passed.
                tell(LimitPause(name, gate.provider, max(gate.until_ms, self._clock.now_ms())))
            await self._wait(gate, wait_limit_s)
        return Passage()

    def leave(self, passage: Passage, info: ModelInfo, failure: Failure | None, policy: RetryPolicy) -> bool:
        """Record the result of a call; returns whether a limit refused it, so that it can be repeated."""
        gate, now_ms = passage.gate, self._clock.now_ms()
        if gate is not None:
            gate.asking -= 1
        is_current = gate is not None and self._gates.get(gate.name) is gate and gate.until_ms == passage.until_ms
        if failure is not None and (is_limit(failure, policy) or (is_current and _is_rate(failure))):
            wait_s = max(failure.retry_after_s or _LOOK_S, _SHORTEST_S)
            self._close(LimitPause(name_gate(info), info.provider, now_ms + round(wait_s * 1000)), is_told=True)
            return True
        if gate is not None and is_current:
            self._widen(gate, is_success=failure is None)
        return False

    def close(self, passage: Passage, info: ModelInfo, until_ms: int) -> None:
        """Record that a child process was refused until a time; in whole seconds, because each measures its own."""
        if passage.gate is not None:
            passage.gate.asking -= 1
        until_ms = max(until_ms, self._clock.now_ms()) // 1000 * 1000 + 1000
        self._close(LimitPause(name_gate(info), info.provider, until_ms))

    def give_up(self, passage: Passage) -> None:
        """Record that a call was cancelled, so that its result is unknown."""
        if passage.gate is not None:
            passage.gate.asking -= 1
            passage.gate.wake()
            self._tell()

    async def share(self, passage: Passage, info: ModelInfo, *, is_known: bool = True) -> None:
        """Tell other processes what was learnt from a call: nothing, if it was cancelled."""
        if self._shared is None:
            return
        gate, (claim, passage.claim) = self._gates.get(name_gate(info)), (passage.claim, 0)
        try:
            if is_known and gate is not None and not gate.width:
                await self._shared.close(gate.name, gate.until_ms)
            elif is_known and claim:
                await self._shared.open(name_gate(info))
        finally:
            if claim:
                await self._shared.release(name_gate(info), claim)

    def _lets_pass(self, gate: _Gate) -> bool:
        """Whether it is open, or a probe can be sent."""
        return bool(gate.width) or (gate.until_ms <= self._clock.now_ms() and not gate.asking)

    def _pass(self, gate: _Gate) -> Passage:
        gate.asking += 1
        return Passage(gate, gate.until_ms, is_probe=not gate.width)

    async def _claim(self, passage: Passage, gate: _Gate) -> bool:
        """Whether the gates of several processes let the caller pass; if not, what is known of them is read again."""
        if self._shared is None:
            return True
        try:
            claim = await self._shared.claim(gate.name)
            if claim is not None:
                passage.claim = claim
                return True
            until_ms = await self._shared.read(gate.name)
        except asyncio.CancelledError:
            self.give_up(passage)
            raise
        gate.asking -= 1
        if until_ms > gate.until_ms:
            self._close(LimitPause(gate.name, gate.provider, until_ms))
        gate.wake(max(1, gate.width))
        return False

    def _widen(self, gate: _Gate, *, is_success: bool) -> None:
        was_closed = not gate.width
        # Doubles with each round of successes, like the start of a TCP connection.
        gate.width = max(1, gate.width + is_success)
        gate.wake(max(1, gate.width - gate.asking))
        if not gate.waiters:
            del self._gates[gate.name]
        if was_closed:
            self._tell()

    def _close(self, pause: LimitPause, *, is_told: bool = False) -> None:
        gate = self._gates.get(pause.gate)
        if gate is None:
            self._gates[pause.gate] = _Gate(pause.gate, pause.provider, pause.until_ms)
        elif pause.until_ms > gate.until_ms:
            if is_told and not gate.width and pause.until_ms - gate.until_ms < 1000 * _SHORTEST_S:
                return  # refusals of calls that were sent together differ by their delay only
            gate.until_ms, gate.width = pause.until_ms, 0
            gate.wake(len(gate.waiters))  # the new time must be shown
        else:
            return
        self._tell()

    async def _wait(self, gate: _Gate, wait_limit_s: float | None) -> None:
        """Wait until something about the gate has changed."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate.waiters.append(turn)
        rest_s = [] if wait_limit_s is None else [wait_limit_s]
        if gate.watcher is None and not gate.width and not gate.asking:
            gate.watcher = turn
            rest_s.append(max(0.0, gate.until_ms - self._clock.now_ms()) / 1000)
        try:
            if not rest_s:
                await turn
                self._forget(gate, turn)
                return
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._clock.sleep(min(*rest_s, _LOOK_S)))
                await asyncio.wait([turn, timer], return_when=asyncio.FIRST_COMPLETED)
                timer.cancel()
        except asyncio.CancelledError:
            self._forget(gate, turn)
            gate.wake()
            raise
        self._forget(gate, turn)

    def _forget(self, gate: _Gate, turn: asyncio.Future[None]) -> None:
        gate.waiters.remove(turn)
        if gate.watcher is turn:
            gate.watcher = None

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _is_rate(failure: Failure) -> bool:
    return failure.kind == "rate" and failure.retryable
