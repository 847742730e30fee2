"""Host: what one process has for all sessions of a Retinue, such as its request, models and machine.

MUST NOT know a session: what belongs to one is in an OpenSession.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.core.clock import Clock
from retinue.core.diagnostics import Diagnostic
from retinue.core.environment import LIMITS_DIR
from retinue.core.model import Model
from retinue.core.redaction import Redactor, collect_secrets
from retinue.core.tool import Tool
from retinue.engine.questions import PendingQuestions
from retinue.engine.rights import RevokedTools
from retinue.engine.setup import Feature
from retinue.models.gate import Gates, SharedGates
from retinue.models.gate_files import GateFiles
from retinue.models.pool import ModelPool, add_models
from retinue.sandbox.profile import TMP_PREFIX
from retinue.settings.inheritance import inherit_budget, inherit_questions
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
    from retinue.sessions.trust import TrustedSessions
    from retinue.settings.config import Config
    from retinue.settings.guards import RemoteGuards
    from retinue.settings.layers import LoadedSettings
    from retinue.settings.paths import Paths


class CallerObjects(Struct, frozen=True):
    """Objects that the caller of the Python API supplies."""

    model: Model | None = None
    """For the main agent."""
    models: Sequence[Model] = ()
    """Added to the models of the user's providers."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Added to the built-in tools; one with the name of a built-in tool replaces it."""
    extensions: Sequence[str | Path] = ()
    """Added to the discovered extensions."""
    wrap_tool: Callable[[Tool], Tool] = lambda tool: tool
    """Wraps each built-in tool of the main agent and its children; it keeps the tool's name and effect."""


class SentRun(Struct, frozen=True):
    """What comes with a main agent that was sent here from another machine."""

    features: Sequence[Feature] = ()
    """Innermost features of the main agent."""
    open_remote: "Callable[[SessionParts], RemoteRuns | None] | None" = None
    """Opens the connection to other machines; None uses the settings."""
    judge: "RemoteGuards | None" = None
    """Lets the sending machine judge the calls of runs."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Tool names that the agent uses, mapped to the original names; empty if they are the same."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Error texts for tools that are not available, by tool name."""
    tell_missing: Callable[[str], None] = lambda text: None
    """Receives a message for each tool that the agent cannot have."""
    source: "Source | None" = None
    """The budget that the agent and its runs draw on."""
    gates: SharedGates | None = None
    """The usage limits that other machines have reached."""


class Host:
    """What a Retinue has for all of its sessions."""

    def __init__(
        self,
        request: Request,
        environment: Mapping[str, str],
        clock: Clock,
        questions: PendingQuestions,
        notify: Callable[[str], None],
        *,
        own: CallerObjects,
        sent: SentRun,
        settings: Overrides,
    ) -> None:
        """`questions` receives questions to the user, `notify` one-line notes; `settings` win over all files."""
        self.request = request
        self.environment = environment
        self.clock = clock
        self.questions = questions
        self._notify = notify
        self.own = own
        self.sent = sent
        self.settings = settings
        self.tool_options = ToolOptions()
        self.revoked = RevokedTools()
        """Tools revoked from runs, including the main agent."""
        self.redactor = Redactor(collect_secrets(environment))
        self.scope = ModelScope()
        """The models that Ctrl+P cycles through."""
        self.models: ModelPool | None = None
        """Created when a model is needed that the caller did not supply."""
        # Named like other private directories, so that it is found and removed after a crash.
        self.spill_dir = Path(tempfile.gettempdir(), f"{TMP_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
        """For tool outputs that are too long for a model; created on first use, removed on close."""
        limits_dir = Path(environment.get(LIMITS_DIR) or self.spill_dir / "limits")
        self.gates = Gates(clock, sent.gates or GateFiles(limits_dir, clock), limits_dir)
        """Where runs wait for usage limits of providers."""
        self.source = inherit_budget(environment)
        """The budget that all sessions draw on, if another process started this one for a run."""
        self.parent_desk = inherit_questions(environment)
        """Asks the parent of this process's agent, if another process started it for a run."""
        self._machine: Machine | None = None
        self._said: set[str] = set()

    @property
    def is_child(self) -> bool:
        """Whether the agent of another program started this process."""
        return self.environment.get("PI_SUBAGENT_CHILD", "") == "1"

    def say(self, text: str) -> None:
        """Pass a note to the caller, with secrets masked: servers and hooks may repeat what they were given."""
        self._notify(self.redactor.redact(text))

    def tell(self, problems: Iterable[Diagnostic], *notes: str) -> None:
        for text in (*(problem.message for problem in problems), *filter(None, notes)):
            self.say(text)

    def tell_missing(self, texts: Iterable[str]) -> None:
        """Report which tools the main agent cannot have, also to the machine that sent it here."""
        for text in texts:
            self.say(text)
            self.sent.tell_missing(self.redactor.redact(text))

    def say_once(self, text: str) -> None:
        """Report something that does not change in this process."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def need_models(self, config: "Config", extensions: "Extensions") -> ModelPool:
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

    def open_trusted_sessions(self, paths: "Paths", loaded: "LoadedSettings") -> "TrustedSessions":
        """Return what decides which sessions can be trusted."""
        from retinue.sessions.trust import TrustedSessions

        flag, setting = self.request.session.directory or None, loaded.settings.session_dir
        directory = find_session_dir(paths, self.environment, flag=flag, setting=setting)
        return TrustedSessions(paths.own_dir, paths.agent_dir, paths.project, directory)

    def find_machine(self) -> "Machine":
        """Return what this machine can enforce, probed once."""
        if self._machine is None:
            from retinue.features.sandbox import open_machine

            self._machine = open_machine()
        return self._machine

    async def close(self) -> None:
        """Release everything; all sessions must be closed."""
        if self.models is not None:
            await self.models.close()
        if self._machine is not None:
            self._machine.close()
        shutil.rmtree(self.spill_dir, ignore_errors=True)
