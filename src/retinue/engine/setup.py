"""What one run is made of, resolved: the engine asks for nothing else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import random

from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.tool import Tool
from retinue.engine.calls import CallHook
from retinue.engine.inbox import Delivery
from retinue.engine.limits import Limits
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig


@dataclass(frozen=True, slots=True)
class RunSetup:
    """One run before it starts."""

    run_id: str
    cwd: Path
    model: Model
    thinking: ThinkingLevel = "off"
    tools: Mapping[str, Tool] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    """The system prompt, in order."""
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    random: Callable[[], float] = random
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    environment: Mapping[str, str] = field(default_factory=dict)
    hooks: Sequence[CallHook] = ()
    spill_dir: Path | None = None
    steering_mode: Delivery = "one-at-a-time"
    follow_up_mode: Delivery = "one-at-a-time"
