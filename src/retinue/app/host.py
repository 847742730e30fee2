"""What one process has for all sessions of a Retinue: what it was asked for and given, its models, this machine.

Knows no session: what belongs to one is in an OpenSession.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.clock import Clock
from retinue.core.diagnostics import Diagnostic
from retinue.core.model import Model
from retinue.core.redaction import Redactor, collect_secrets
from retinue.core.tool import Tool
from retinue.engine.questions import Desk
from retinue.engine.rights import RevokedTools
from retinue.engine.setup import Feature
from retinue.models.pool import ModelPool, add_models
from retinue.sandbox.profile import TMP_PREFIX
from retinue.settings.inheritance import inherit_budget
from retinue.settings.overrides import Overrides
from retinue.settings.paths import find_session_dir
from retinue.settings.providers import load_registry, to_pool_config
from retinue.settings.request import Request
from retinue.tools.registry import ToolOptions
from retinue.views.models import ModelScope

if TYPE_CHECKING:
    from retinue.app.extensions import Extensions
    from retinue.app.session_parts import SessionParts
    from retinue.engine.budget import Source
    from retinue.engine.manager import RemoteRuns
    from retinue.sandbox.probe import Machine
    from retinue.sessions.trust import Vouchers
    from retinue.settings.config import Config
    from retinue.settings.guards import Judging
    from retinue.settings.layers import LoadedSettings
    from retinue.settings.paths import Paths


@dataclass(frozen=True, slots=True)
class Own:
    """What a caller has made itself."""

    model: Model | None = None
    """The main agent's."""
    models: Sequence[Model] = ()
    """Known by name beside those of the user's providers."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Beside the built-in ones, and instead of those with the same name."""
    extensions: Sequence[str | Path] = ()
    """Beside those that are found."""


@dataclass(frozen=True, slots=True)
class SentRun:
    """What a main agent brings along that was sent here from another machine."""

    features: Sequence[Feature] = ()
    """Around the main agent, inside of all others."""
    open_remote: "Callable[[SessionParts], RemoteRuns | None] | None" = None
    """Gives the other machines to it; None: those that settings name."""
    judge: "Judging | None" = None
    """Lets the face of such an agent judge what its runs do."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What it calls its tools, with their own names; empty where they are the same."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """What it is told when it calls a tool that it could not be given."""
    tell_missing: Callable[[str], None] = lambda text: None
    """Also gets which of its tools it cannot have."""
    source: "Source | None" = None
    """The budget that it draws on with all it starts."""


class Host:
    """What a Retinue has for whatever session it works in."""

    def __init__(
        self,
        request: Request,
        environment: Mapping[str, str],
        clock: Clock,
        desk: Desk,
        notify: Callable[[str], None],
        *,
        own: Own,
        sent: SentRun,
        settings: Overrides,
    ) -> None:
        """`desk` is where runs ask a person, `notify` gets one-line notes, `settings` win over all files."""
        self.request = request
        self.environment = environment
        self.clock = clock
        self.desk = desk
        self._notify = notify
        self.own = own
        self.sent = sent
        self.settings = settings
        self.tool_options = ToolOptions()
        self.revoked = RevokedTools()
        """What was taken from runs, the main agent's among them."""
        self.redactor = Redactor(collect_secrets(environment))
        self.scope = ModelScope()
        """The models that are turned through."""
        self.models: ModelPool | None = None
        """There once somebody needs one that the caller has not made."""
        # Named so that it is found and removed after a crash, as other private directories are.
        self.spill_dir = Path(tempfile.gettempdir(), f"{TMP_PREFIX}{os.getpid()}-{secrets.token_hex(8)}")
        """For outputs that are too long for a model; made by the first, and gone with this."""
        self.source = inherit_budget(environment)
        """The budget that all sessions draw on, in a process that another one has started for a run."""
        self._machine: Machine | None = None
        self._said: set[str] = set()

    @property
    def is_child(self) -> bool:
        """Whether another program's agent has started this process."""
        return self.environment.get("PI_SUBAGENT_CHILD", "") == "1"

    def say(self, text: str) -> None:
        """Give the caller a note, without secrets: servers and hooks may repeat what they were given."""
        self._notify(self.redactor.redact(text))

    def tell(self, problems: Iterable[Diagnostic], *notes: str) -> None:
        """Say what is wrong, and what else is to be said."""
        for text in (*(problem.message for problem in problems), *filter(None, notes)):
            self.say(text)

    def tell_missing(self, texts: Iterable[str]) -> None:
        """Say which tools the main agent cannot have, also to whoever has sent it here."""
        for text in texts:
            self.say(text)
            self.sent.tell_missing(self.redactor.redact(text))

    def say_once(self, text: str) -> None:
        """Say what does not change while this process is there."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def need_models(self, config: "Config", extensions: "Extensions") -> ModelPool:
        """The models, read now if nobody has needed one yet."""
        if self.models is None:
            request, redactor = self.request, self.redactor
            registry, problems = load_registry(
                config.paths, self.environment, api_key=request.api_key, offline=request.offline
            )
            own: list[Model] = [*self.own.models, *extensions.collect("models")]
            self.tell(problems, *add_models(registry, own, extensions.collect("providers")))
            options = to_pool_config(config.loaded.settings)
            self.models = ModelPool(registry, options, self.clock, own, learn=redactor.learn)
            redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
        return self.models

    def open_vouchers(self, paths: "Paths", loaded: "LoadedSettings") -> "Vouchers":
        """What tells which sessions can be believed."""
        from retinue.sessions.trust import Vouchers

        flag, setting = self.request.session.directory or None, loaded.settings.session_dir
        directory = find_session_dir(paths, self.environment, flag=flag, setting=setting)
        return Vouchers(paths.own_dir, paths.agent_dir, paths.project, directory)

    def find_machine(self) -> "Machine":
        """What this machine can enforce, found out once."""
        if self._machine is None:
            from retinue.features.sandbox import open_machine

            self._machine = open_machine()
        return self._machine

    async def close(self) -> None:
        """Give everything back; no session is open any more."""
        if self.models is not None:
            await self.models.close()
        if self._machine is not None:
            self._machine.close()
        shutil.rmtree(self.spill_dir, ignore_errors=True)
