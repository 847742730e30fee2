"""What one Retinue has for all its sessions: what it was asked for and given, its models, this machine.

Knows no session: what belongs to one is a Berth's.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.model_access import Models, add_models
from retinue.core.clock import Clock
from retinue.core.diagnostics import Diagnostic
from retinue.core.model import Model
from retinue.core.redaction import Redactor, collect_secrets
from retinue.core.tool import Tool
from retinue.engine.questions import Desk
from retinue.engine.rights import RevokedTools
from retinue.engine.setup import Feature
from retinue.sandbox.profile import TMP_PREFIX
from retinue.settings.inheritance import inherit_budget
from retinue.settings.overrides import Overrides
from retinue.settings.providers import load_registry
from retinue.settings.request import Request
from retinue.tools.registry import ToolOptions
from retinue.views.models import ModelScope

if TYPE_CHECKING:
    from retinue.app.config import World
    from retinue.app.extensions import Extending
    from retinue.app.subagents import CrewParts
    from retinue.engine.external.budget_socket import ParentBudget
    from retinue.engine.manager import RemoteRuns
    from retinue.sandbox.probe import Machine
    from retinue.settings.guards import Judging


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
    features: Sequence[Feature] = ()
    """Around the main agent, inside of all others."""
    open_remote: "Callable[[CrewParts], RemoteRuns | None] | None" = None
    """Gives the other machines to a main agent that works on one of them itself; None: those that settings name."""
    judge: "Judging | None" = None
    """Lets the face of such an agent judge what its runs do."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What such an agent calls its tools, with their own names; empty where they are the same."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """What it is told when it calls a tool that it could not be given."""
    tell_missing: Callable[[str], None] = lambda text: None
    """Also gets which of its tools such an agent cannot have."""


@dataclass(slots=True)
class Stock:
    """What a Retinue has for whatever session it works in."""

    request: Request
    environment: Mapping[str, str]
    clock: Clock
    say: Callable[[str], None]
    """Gets one-line notes."""
    desk: Desk
    """Where its runs ask a person."""
    own: Own = field(default_factory=Own)
    settings: Overrides = field(default_factory=Overrides)
    """Those that win over all files."""
    tool_options: ToolOptions = field(default_factory=ToolOptions)
    revoked: RevokedTools = field(default_factory=RevokedTools)
    """What was taken from runs, the main agent's among them."""
    redactor: Redactor = field(init=False)
    scope: ModelScope = field(default_factory=ModelScope)
    """The models that are turned through."""
    models: Models | None = None
    """There once somebody needs one that the caller has not made."""
    _machine: "Machine | None" = None
    _said: set[str] = field(default_factory=set)
    spill_dir: Path = field(init=False)
    """For outputs that are too long for a model; made by the first, and gone with this."""

    source: "ParentBudget | None" = field(init=False)
    """The budget that all sessions draw on, in a process that another one has started for a run."""

    def __post_init__(self) -> None:
        self.source = inherit_budget(self.environment)
        self.redactor = Redactor(collect_secrets(self.environment))
        # Named so that it is found and removed after a crash, as other private directories are.
        name = f"{TMP_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self.spill_dir = Path(tempfile.gettempdir(), name)
        say = self.say
        # Servers and hooks complain in their own words, and may repeat what they were given.
        self.say = lambda text: say(self.redactor.redact(text))

    @property
    def is_child(self) -> bool:
        """Whether another program's agent has started this process."""
        return self.environment.get("PI_SUBAGENT_CHILD", "") == "1"

    def tell(self, problems: Iterable[Diagnostic], *notes: str) -> None:
        """Say what is wrong, and what else is to be said."""
        for text in (*(problem.message for problem in problems), *filter(None, notes)):
            self.say(text)

    def tell_missing(self, texts: Iterable[str]) -> None:
        """Say which tools the main agent cannot have, also to whoever has sent it here."""
        for text in texts:
            self.say(text)
            self.own.tell_missing(self.redactor.redact(text))

    def say_once(self, text: str) -> None:
        """Say what does not change while this process is there."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def need_models(self, world: "World", extending: "Extending") -> Models:
        """The models, read now if nobody has needed one yet."""
        if self.models is None:
            request, redactor = self.request, self.redactor
            registry, problems = load_registry(
                world.paths, self.environment, api_key=request.api_key, offline=request.offline
            )
            own: list[Model] = [*self.own.models, *extending.collect("models")]
            self.tell(problems, *add_models(registry, own, extending.collect("providers")))
            self.models = Models(registry, world.loaded.settings, self.clock, own)
            redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
            self.models.learn = redactor.learn
        return self.models

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
