"""One open session: its main agent, its subagents, and what both use. All of it ends with the session.

Retinue decides which session is open and when it is replaced.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from retinue.app.host import Host
from retinue.app.main_agent import MainTools, build_main, charge_model
from retinue.app.session_parts import SessionParts, build_parts
from retinue.app.session_switch import find_folder
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import Event, RunFinished, Warned
from retinue.core.figures import format_limit
from retinue.core.messages import UserContent
from retinue.core.model import Model, ModelInfo
from retinue.core.run import Outcome, Reason, Status
from retinue.engine.limits import GuardLimits
from retinue.engine.recovery import find_main_pause
from retinue.engine.runner import LiveRun
from retinue.engine.spending_guard import SpendingGuard
from retinue.models.gate import LimitPause
from retinue.sessions.log import Session
from retinue.settings.config import Config, load_config
from retinue.settings.layers import LoadedSettings, load_settings
from retinue.settings.paths import Paths
from retinue.settings.subagents import LoadedSubagents
from retinue.tools.registry import build_extra_tools

if TYPE_CHECKING:  # slow imports, needed only in sessions that delegate
    from retinue.app.delegation_tools import DelegationTools
    from retinue.app.extensions import SubagentChannels
    from retinue.app.subagents import Subagents
    from retinue.features.extensions.channels import Channels
    from retinue.surfaces.fleet.ports import FleetPorts
    from retinue.tools.policy import Rights

CLOSE_S = 2.0
STALL_S = 0.15
"""How often a prompt that does not wait for usage limits looks whether anything works."""


class OpenSession:
    def __init__(
        self, parts: SessionParts, main: LiveRun, tools: MainTools, delegation: "DelegationTools | None"
    ) -> None:
        """`delegation` is None if the main agent has no delegation tools."""
        self.parts = parts
        self.config = parts.config
        self.tools = tools
        self.subagents: Subagents | None = None
        """Opened when they are first needed."""
        self._main = main
        self._delegation = delegation
        self._is_open = True
        self._opening = asyncio.Lock()
        self._was_paused = False
        """Whether runs waited for a usage limit when the last process ended, and nothing was prompted since."""
        self._channels: SubagentChannels | None = None
        """Set once an extension is loaded."""
        if parts.recorder is not None:
            parts.recorder.listen(main, parts.host.request.agent or "")
        self._guard = SpendingGuard(main, parts.host.questions, self._read_guard, self._stop_work)
        parts.extensions.listen(main)
        parts.extensions.connect(self._connect)

    @property
    def main(self) -> LiveRun:
        """The main agent. Raises RetinueError if the session is closed."""
        if not self._is_open:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._main

    def open_model(self, info: ModelInfo) -> Model:
        """Return a model whose usage counts for the budget. Raises ModelError or ConfigError."""
        return charge_model(self.parts.models.open(info), self.parts.lease)

    async def close(self) -> None:
        """End everything; the session is on disk, and unfinished runs can be resumed."""
        if not self._is_open:
            return
        run, subagents, is_paused = self._main, self.subagents, self.is_paused
        self.subagents, self._is_open = None, False
        self._guard.close()
        if is_paused and subagents is not None and not subagents.manager.is_left:
            subagents.manager.leave(keeps_all=True)
        run.abort(Reason.LIMIT if is_paused else Reason.USER)
        if subagents is not None:
            await subagents.close()
        await self.parts.extensions.close()
        await self.parts.languages.close()
        # A prompt of another task ends by itself now; if it does not in time, it is abandoned.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await wait_until_idle(run)
        run.journal.flush()
        run.session.close()
        if self.parts.recorder is not None:
            self.parts.recorder.flush()

    @property
    def is_paused(self) -> bool:
        """Whether a run waits for a usage limit and can be continued when the session is opened again."""
        waits = self._was_paused or self._main.limit_wait.pause is not None
        waits = waits or (self.subagents is not None and bool(self.subagents.manager.pauses))
        return waits and self._main.session.path is not None

    @property
    def is_stalled(self) -> bool:
        """Whether a usage limit keeps everything from working."""
        if self.subagents is not None:
            return self.subagents.manager.is_stalled
        return self._main.limit_wait.is_waiting

    @property
    def limits(self) -> list[tuple[str, int, int]]:
        """The usage limits that runs wait for: provider, until when in milliseconds, number of waiting agents."""
        if self.subagents is not None:
            return self.subagents.manager.count_pauses()
        own = self._main.limit_wait
        return [(own.pause.provider, own.pause.until_ms, 1)] if own.is_waiting and own.pause is not None else []

    @property
    def is_interrupted(self) -> bool:
        """Whether there is work that an earlier process left unfinished."""
        active = [] if self.subagents is None else self.subagents.manager.list_runs()
        is_working = any(not run.status.is_final for run in active)
        return is_working or bool(self.main.inbox) or not self.main.is_answered

    async def prompt(self, content: str | Sequence[UserContent] | None, *, settle: bool, waits: bool = True) -> Outcome:
        """Prompt the main agent and wait until it is done; with `settle` also for the runs it started.

        None continues from the end of its session. Without `waits` it ends when a usage limit keeps everything from
        working, and can be continued later.
        """
        if waits:
            return await self._prompt(content, settle=settle)
        error = ""

        def end(is_stalled: bool) -> None:
            nonlocal error
            error = self._end_at_limit() if is_stalled else error

        with self.watch_stall(end):
            outcome = await self._prompt(content, settle=settle)
        if outcome.reason is not Reason.LIMIT:
            return outcome
        return structs.replace(outcome, status=Status.INTERRUPTED, error=error)

    @contextmanager
    def watch_stall(self, tell: Callable[[bool], None]) -> Iterator[None]:
        """Call `tell` when a usage limit begins to keep everything from working, and when that ends."""
        loop, was_stalled, told = asyncio.get_running_loop(), False, False
        timer = loop.call_later(STALL_S, lambda: look())

        def look() -> None:
            nonlocal timer, was_stalled, told
            is_stalled = self.is_stalled
            # A call that is starting a run looks like one that waits for it, but not for long.
            if is_stalled == was_stalled and is_stalled != told:
                told = is_stalled
                tell(told)
            was_stalled = is_stalled
            timer = loop.call_later(STALL_S, look)

        try:
            yield
        finally:
            timer.cancel()

    def _end_at_limit(self) -> str:
        """End the prompt; returns what would have to be waited for."""
        limits, now_ms = self.limits, self.parts.host.clock.now_ms()
        if self.subagents is not None:
            self.subagents.manager.dismiss(Reason.LIMIT)
        self._main.abort(Reason.LIMIT)
        return "; ".join(format_limit(provider, until_ms, now_ms) for provider, until_ms, _ in limits)

    async def _prompt(self, content: str | Sequence[UserContent] | None, *, settle: bool) -> Outcome:
        main, subagents = self.main, self.subagents
        stay, self._was_paused = None, False
        if subagents is not None:
            await subagents.reactions.open()
        self.renew()
        if subagents is not None and settle:
            stay = partial(subagents.manager.stay, self.parts.run_id, main)
        return await (main.go_on(stay=stay) if content is None else main.prompt(content, stay=stay))

    def renew(self) -> None:
        """Reset what one prompt may cost and start."""
        self.parts.lease.renew()
        self._guard.renew()
        if self.subagents is not None:
            self.subagents.manager.admission.begin_prompt()

    def _read_guard(self) -> GuardLimits:
        # The process that started this one counts its calls too.
        return GuardLimits() if self.parts.host.request.is_child else self.config.crew.settings.guard.to_guard()

    def _stop_work(self) -> None:
        self._main.abort(Reason.USER)
        if self.subagents is not None:
            self.subagents.manager.dismiss()
            self.subagents.manager.stop_all()

    def find_subagents(self) -> "Subagents":
        """Return the open subagents. Raises RetinueError if there are none yet."""
        if self.subagents is None:
            raise RetinueError("the subagents of this session are not open yet")
        return self.subagents

    async def need_subagents(self) -> "Subagents":
        async with self._opening:
            return self.subagents or await self._open_subagents(self.main)

    async def _open_subagents(self, main: LiveRun) -> "Subagents":
        from retinue.app.delegation_tools import build_delegation_tools
        from retinue.app.subagents import open_subagents

        parts = self.parts
        if self._delegation is None:
            surfaces = self.tools.list_surfaces()
            self._delegation = build_delegation_tools(parts, surfaces, self.find_subagents)
        rights = self._find_rights(main, self._delegation)
        self.subagents = found = await open_subagents(self._delegation, main, rights, self._guard.watch)
        self._was_paused = found.was_paused
        if found.dismissed:
            parts.host.say(
                f"session {quote(parts.session.id)} is in a folder that others can write, so its "
                f"{found.dismissed} earlier runs are not resumed; only runs of sessions in your own session folder are"
            )
        return found

    def _find_rights(self, main: LiveRun, delegation: "DelegationTools") -> "Rights":
        """Return the rights that no run of the main agent may exceed."""
        from retinue.tools.policy import Rights

        host = self.parts.host
        is_readonly = host.request.is_readonly or main.setup.find_plan().rights.readonly
        own = {**main.setup.tools, **delegation.make(self.parts.run_id), **build_extra_tools()}
        names = host.sent.names
        targets = {name: names[name] for name in own if names.get(name, name) != name}
        return Rights(allowed=tuple(own), readonly=is_readonly, targets=targets)

    def _connect(self, channels: "Channels") -> None:
        """Let extensions receive events about subagents and request runs."""
        from retinue.app.extensions import SubagentChannels

        self._channels = SubagentChannels(
            channels,
            self.main.bus,
            self.config.crew.settings,
            open_ports=self._open_ports,
            find=lambda run_id: None if self.subagents is None else self.subagents.manager.find(run_id),
        )

    def apply_settings(self, crew: LoadedSubagents, *, persisted: bool) -> None:
        """Apply changed settings, as far as possible in an open session."""
        self.config.crew.replace(crew)
        if self.subagents is not None:
            self.subagents.apply_settings()
        if self._channels is not None:
            self._channels.tell_change(crew.settings, persisted=persisted)

    async def _open_ports(self) -> "FleetPorts":
        if not self._is_open:
            raise UsageError("No active session")
        return (await self.need_subagents()).ports

    def warn(self, text: str) -> None:
        self._main.bus.publish(Warned(run_id=self.parts.run_id, text=text))


async def open_session(host: Host, session: Session, paths: Paths, loaded: LoadedSettings) -> OpenSession:
    """Open a session for work; it is closed again if that fails.

    `paths` and `loaded` are those of the start folder or of the session before.
    """
    note = ""
    try:
        if _leads_away(host, session, paths, loaded):
            # A session continues in its own folder, with the configuration there.
            if host.request.approve:
                began = quote(str(paths.cwd), 200)
                note = f"--approve applies to {began} only; to approve the folder of the session, start retinue there"
            paths = find_folder(session, host.environment)
            # `--approve` is for the start folder, not for the folder of a session; a refusal is for all.
            approve = False if host.request.approve is False else None
            loaded = load_settings(paths, host.environment, flags=host.settings.main, approve=approve)
        host.tell(loaded.diagnostics, loaded.trust.notice, note if loaded.trust.notice else "")
        config = load_config(
            paths,
            loaded,
            host.request,
            host.environment,
            flags=host.settings.crew,
            find_machine=host.find_machine,
            tell=host.say_once,
        )
        host.tell(config.diagnostics)
        opened = await _open_main(host, session, config)
    except BaseException:
        session.close()
        raise
    if session.damage:
        host.say(str(session.damage))
    return opened


async def _open_main(host: Host, session: Session, config: Config) -> OpenSession:
    """Build the main agent, and open its subagents if it may delegate."""
    opened: OpenSession | None = None

    def find_opened() -> OpenSession:
        if opened is None:
            raise RetinueError("the subagents of this session are not open yet")
        return opened

    def warn(text: str) -> None:
        if opened is not None:
            opened.warn(text)

    parts = build_parts(host, session, config, lambda: find_opened().main, warn)
    tools = MainTools(parts, find_opened)
    host.revoked.succeed(parts.run_id)
    try:
        setup, delegation = await build_main(parts, tools, lambda: find_opened().find_subagents())
        main = LiveRun(setup, session, clock=host.clock)
        if (pause := find_main_pause(session)) is not None:
            main.limit_wait.pause = LimitPause(pause.gate, pause.provider, pause.until_ms)
            host.gates.restore(main.limit_wait.pause)
        opened = OpenSession(parts, main, tools, delegation)
        if delegation is not None or parts.extensions.collect("surfaces"):
            await opened.need_subagents()
    except BaseException:
        await parts.extensions.close()
        raise
    return opened


def _leads_away(host: Host, session: Session, paths: Paths, loaded: LoadedSettings) -> bool:
    """Return whether a session continues in another folder; an untrusted session does not, with a note."""
    if not session.cwd or Path(session.cwd) == paths.cwd or host.request.session.is_alone:
        return False
    trusted_sessions = host.open_trusted_sessions(paths, loaded)
    if session.path is None or trusted_sessions.believes_folder(session.path, session.id, session.cwd):
        return True
    host.say(
        f"session {quote(session.id)} says that it belongs to {quote(session.cwd, 200)}, but it is not from your own "
        f"session folder: staying in {quote(str(paths.cwd), 200)} (to continue there, start retinue in that folder)"
    )
    return False


async def wait_until_idle(run: LiveRun) -> None:
    while run.is_busy:
        ended = asyncio.Event()

        def hear(event: Event, ended: asyncio.Event = ended) -> None:
            if isinstance(event, RunFinished) and event.run_id == run.setup.run_id:
                ended.set()

        stop = run.bus.listen(hear, pieces=False)
        try:
            await ended.wait()
        finally:
            stop()
