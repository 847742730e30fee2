"""How the main agent goes about it, for as long as this process lives: what is said at once, what it does unasked."""

from dataclasses import replace

import msgspec

from retinue.engine.inbox import Delivery
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup


class Tuning:
    """The habits of one main agent. The user's settings stay as they are."""

    def __init__(self, main: LiveRun) -> None:
        self._main = main

    @property
    def steering_mode(self) -> Delivery:
        """How many steering messages are said at once."""
        return self._main.inbox.steering_mode

    @steering_mode.setter
    def steering_mode(self, mode: Delivery) -> None:
        self._main.inbox.steering_mode = mode
        self._main.change(steering_mode=mode)

    @property
    def follow_up_mode(self) -> Delivery:
        """How many follow-ups are said at once."""
        return self._main.inbox.follow_up_mode

    @follow_up_mode.setter
    def follow_up_mode(self, mode: Delivery) -> None:
        self._main.inbox.follow_up_mode = mode
        self._main.change(follow_up_mode=mode)

    @property
    def compacts(self) -> bool:
        """Whether the context is summarised when it gets long."""
        return self._main.setup.compaction.enabled

    @compacts.setter
    def compacts(self, enabled: bool) -> None:
        self._main.change(compaction=replace(self._main.setup.compaction, enabled=enabled))

    @property
    def retries(self) -> bool:
        """Whether a reply that failed for a passing reason is asked for again."""
        return self._main.setup.retry.enabled

    @retries.setter
    def retries(self, enabled: bool) -> None:
        self._main.change(retry=msgspec.structs.replace(self._main.setup.retry, enabled=enabled))

    def take_over(self, setup: RunSetup) -> None:
        """Have the habits of another main agent."""
        self.steering_mode, self.follow_up_mode = setup.steering_mode, setup.follow_up_mode
        self.compacts, self.retries = setup.compaction.enabled, setup.retry.enabled
